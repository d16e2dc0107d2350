"""Every example prints the right result from the command line."""

import ast
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli

EXAMPLES = Path(__file__).parent.parent / "examples"


def printed(target: str) -> list[str]:
    command = [sys.executable, "-m", "penstock", "run", target, "--engine", "sequential", "--no-report"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(path):
    assert printed(f"{path}:flow")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_prints_the_same_on_spark(path):
    result = CliRunner().invoke(cli, ["run", f"{path}:flow", "--no-report"])
    assert result.exit_code == 0, result.output
    # Of two sinks that print, Spark calls one after the other for each batch: what each prints is the same.
    by_sink = [
        sorted(lines, key=lambda line: line[0]) for lines in (result.stdout.splitlines(), printed(f"{path}:flow"))
    ]
    assert by_sink[0] == by_sink[1]


NAMED_VALUES = [
    {"id": 1, "name": "ada", "value": 1815},
    {"id": 3, "name": "grace", "value": 1906},
    {"id": 4, "name": "barbara", "value": 1939},
    {"id": 6, "name": "frances", "value": 1932},
]


def test_name_value_join():
    assert [ast.literal_eval(line) for line in printed(f"{EXAMPLES}/name_value_join.py:flow")] == NAMED_VALUES


def test_name_value_join_over_tcp():
    lines = (EXAMPLES / "data" / "values.csv").read_text().split("\n", 1)[1]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        target = f"{EXAMPLES}/name_value_join.py:over_tcp('127.0.0.1', {server.getsockname()[1]})"
        command = [sys.executable, "-m", "penstock", "run", target, "--engine", "sequential", "--no-report"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            connection, _ = server.accept()
            with connection:
                connection.sendall(lines.encode())
            out, _ = process.communicate(timeout=120)
    assert [ast.literal_eval(line) for line in out.splitlines()] == NAMED_VALUES


def test_failed_logins_finds_exactly_the_sshd_failures():
    lines = printed(f"{EXAMPLES}/failed_logins.py:flow")
    rows = [ast.literal_eval(line) for line in lines if line.startswith("{")]
    assert [(row["time"], row["rhost"], row["user"]) for row in rows] == [
        ("2026-11-03 04:11:05", "203.0.113.9", "root"),
        ("2026-11-03 04:12:58", "198.51.100.23", ""),
        ("2026-11-03 04:14:02", "203.0.113.9", "postgres"),
    ]
    assert [line for line in lines if not line.startswith("{")] == ["not a syslog line: '-- MARK --'"]


def test_high_mobility_fraud_finds_the_cloned_phones_as_plain_python_does():
    sys.path.insert(0, str(EXAMPLES))
    try:
        import high_mobility_fraud as fraud
    finally:
        sys.path.remove(str(EXAMPLES))
    last, expected = {}, Counter()
    for number in range(2000):
        call = fraud.make_call(number)
        if not call.caller.startswith(fraud.AREA_CODE):
            continue
        for seen in fraud.places(call):
            _, row = fraud.speed(last.get(seen.phone), seen)
            last[seen.phone] = seen
            if row["kmh"] > fraud.FASTEST_KMH:
                expected[seen.phone, seen.time // fraud.WINDOW_SECONDS * fraud.WINDOW_SECONDS] += 1
    found = {}
    for line in printed(f"{EXAMPLES}/high_mobility_fraud.py:flow"):
        phone, times, _, _, start, *_ = line.split()
        found[phone, float(start)] = int(times)
    assert found == expected
    assert {phone for phone, _ in found} == {"312-555-0007", "312-555-0023"}
