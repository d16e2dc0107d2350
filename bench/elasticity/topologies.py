"""The topologies of C-Stream, section 5.1, and one of tuples so cheap that one thread is best."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import penstock as ps

COST = 0.001
"""Seconds that a busy operator of a topology takes for a tuple."""


Work = Callable[[Any], Any]
SETTINGS: dict[str, dict[str, Any]] = {
    name: {"fuse": False, "queue_size": 32} for name in ("chain", "data-parallel", "tree", "reverse tree")
}
SETTINGS["cheap tuples"] = {}


def chain(flow: ps.Flow, work: Work) -> None:
    stream = flow.read(ps.sources.generate(lambda n: n), name="in")
    for number in range(12):
        stream = stream.map(work, name=f"busy{number}")
    stream.write(ps.sinks.null(), name="out")


def data_parallel(flow: ps.Flow, work: Work) -> None:
    stream = flow.read(ps.sources.generate(lambda n: n), name="in")
    ways = [
        stream.filter(lambda n, way=way: n % 12 == way, name=f"way{way}").map(work, name=f"busy{way}")
        for way in range(12)
    ]
    ways[0].merge(*ways[1:], name="merge").write(ps.sinks.null(), name="out")


def tree(flow: ps.Flow, work: Work, depth: int = 6) -> None:
    level = [flow.read(ps.sources.generate(lambda n: n), name="in").map(work, name="busy0_0")]
    for height in range(1, depth):
        below = []
        for place, stream in enumerate(level):
            sides = stream.branch(lambda n, height=height: n >> (height - 1) & 1, name=f"split{height}_{place}")
            below += [side.map(work, name=f"busy{height}_{2 * place + which}") for which, side in enumerate(sides)]
        level = below
    for place, stream in enumerate(level):
        stream.write(ps.sinks.null(), name=f"out{place}")


def reverse_tree(flow: ps.Flow, work: Work, depth: int = 6) -> None:
    level = [
        flow.read(ps.sources.generate(lambda n: n), name=f"in{place}").map(work, name=f"busy{depth}_{place}")
        for place in range(2 ** (depth - 1))
    ]
    for height in range(depth - 1, 0, -1):
        level = [
            one.merge(other, name=f"merge{height}_{place}").map(work, name=f"busy{height}_{place}")
            for place, (one, other) in enumerate(zip(level[::2], level[1::2], strict=True))
        ]
    level[0].write(ps.sinks.null(), name="out")


def cheap(flow: ps.Flow, work: Work) -> None:
    stream = flow.read(ps.sources.generate(lambda n: n), name="in")
    for number in range(3):
        stream = stream.map(lambda n: n + 1, name=f"cheap{number}")
    stream.write(ps.sinks.null(), name="out")


TOPOLOGIES: dict[str, Callable[[ps.Flow, Work], None]] = {
    "chain": chain,
    "data-parallel": data_parallel,
    "tree": tree,
    "reverse tree": reverse_tree,
    "cheap tuples": cheap,
}


def is_cheap(topology: str) -> bool:
    """Whether its tuples cost so little that threads only take the GIL from each other."""
    return topology == "cheap tuples"


def made(topology: str, work: Work = lambda n: n) -> tuple[ps.Flow, dict[str, float]]:
    """A flow, and what its operators cost."""
    flow = ps.Flow(topology.replace(" ", "-"))
    TOPOLOGIES[topology](flow, work)
    names = [node.name for node in flow.validate().nodes]
    costs = {name: COST for name in names if name.startswith("busy")}
    return flow, costs or {name: 1e-6 for name in names if name.startswith("cheap")}


def checksum(microseconds: float) -> Work:
    """A function that takes so long outside the GIL."""
    data, size = bytes(1 << 20), 1 << 14
    began = time.perf_counter()
    for _ in range(200):
        zlib.crc32(memoryview(data)[:size])
    size = int(size * microseconds * 1e-6 / ((time.perf_counter() - began) / 200))
    view = memoryview(data)[: min(size, len(data))]

    def work(x: Any) -> Any:
        zlib.crc32(view)
        return x

    return work
