"""Find failed logins in a syslog file: the composite of IBM Streams 4.2, Figure 1.

penstock run examples/failed_logins.py:flow --engine sequential
"""

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import penstock as ps

DATA = Path(__file__).parent / "data"
YEAR = 2026  # syslog leaves it out
FIELD = re.compile(r"(\w+)=(\S*)")


def parse_line(line: str) -> dict[str, Any]:
    """`Nov  3 04:17:01 host service[pid]: message` as a row."""
    month, day, clock, host, service, message = line.split(maxsplit=5)
    time = datetime.strptime(f"{YEAR} {month} {day} {clock}", "%Y %b %d %H:%M:%S")
    return {"time": time, "hostname": host, "service": service, "message": message}


def is_failed_login(row: dict[str, Any]) -> bool:
    return "sshd" in row["service"] and "authentication failure" in row["message"]


def parse_failure(row: dict[str, Any]) -> dict[str, Any]:
    fields = dict(FIELD.findall(row["message"]))
    names = ("uid", "euid", "tty", "rhost", "user")
    return {"time": row["time"].isoformat(sep=" "), **{name: fields.get(name, "") for name in names}}


def make_flow(path: str = str(DATA / "messages")) -> ps.Flow:
    flow = ps.Flow("failed-logins")
    lines = flow.read(ps.sources.text(path), name="lines")
    parsed = lines.map(parse_line, on_error="dead-letter")
    parsed.filter(is_failed_login).map(parse_failure).write(ps.sinks.console())
    flow.dead_letters("parse_line").map(lambda letter: f"not a syslog line: {letter.value!r}").write(
        ps.sinks.console(), name="unparsed"
    )
    return flow


flow = make_flow()
