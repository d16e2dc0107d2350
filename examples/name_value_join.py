"""Pair names with values, one of each: the flow of C-Stream's Listing 1 with its Barrier.

penstock run examples/name_value_join.py:flow --engine sequential
penstock run "examples/name_value_join.py:over_tcp('127.0.0.1', 44000)" --engine sequential
"""

from pathlib import Path
from typing import Any

import penstock as ps

DATA = Path(__file__).parent / "data"


class Barrier(ps.Operator):
    """Take one tuple from every input and emit them together."""

    inputs = 2

    async def process(self, ctx: Any) -> None:
        while await ctx.wait_all():  # one tuple on every input; False once that can never be
            await ctx.emit(tuple(port.pop() for port in ctx.inputs))


def combined(pair: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    name, value = pair
    return {"id": name["id"], "name": name["name"], "value": value["value"]}


def parsed(line: str) -> dict[str, Any]:
    id_, value = line.split(",")
    return {"id": int(id_), "value": int(value)}


def connect(flow: ps.Flow, values: ps.Stream[dict[str, Any]]) -> ps.Flow:
    names = flow.read(ps.sources.csv(DATA / "names.csv", schema="id long, name string"), name="name_source")
    named = names.filter(lambda row: row["name"], name="empty_filter")
    pairs = flow.add(Barrier(), named, values, name="combiner")
    pairs.map(combined).write(ps.sinks.console())
    return flow


def from_files() -> ps.Flow:
    flow = ps.Flow("name-value-join")
    return connect(flow, flow.read(ps.sources.csv(DATA / "values.csv", schema="id long, value long"), name="values"))


def over_tcp(host: str, port: int) -> ps.Flow:
    """The same with the values from a TCP server, as in the paper."""
    flow = ps.Flow("name-value-join")
    return connect(flow, flow.read(ps.sources.socket(host, port), name="value_source").map(parsed))


flow = from_files()
