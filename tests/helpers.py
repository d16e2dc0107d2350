"""Short ways to build and run small flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import penstock as ps


def outputs(engine: Any, build: Callable[..., Any], *inputs: Iterable[Any]) -> list[Any]:
    """What comes out of the stream that `build` makes from streams of these inputs."""
    return run(engine, lambda *streams: [build(*streams)], *inputs)[0]


def run(engine: Any, build: Callable[..., Iterable[Any]], *inputs: Iterable[Any]) -> list[list[Any]]:
    """The same for several streams at once."""
    flow = ps.Flow("test")
    streams = [flow.read(ps.sources.items(values), name=f"input-{place}") for place, values in enumerate(inputs)]
    sinks = []
    for stream in build(*streams):
        sinks.append(ps.sinks.collect())
        stream.write(sinks[-1])
    flow.run(engine)
    return [sink.items for sink in sinks]


def names(flow: ps.Flow) -> list[str]:
    """The names of a flow's operators, in running order."""
    return [node.name for node in flow.validate().nodes]
