"""`penstock.testing`: the tools that Penstock tests itself with, for your operators, policies and engines.

They run small flows under conditions that are worse than any real run: queues that hold one tuple, ports that refuse
every other time, preemption at every point, many workers in an order drawn from a seed. What comes out must be what the
sequential engine gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import penstock as ps
from penstock.clock import FakeClock
from penstock.engines.base import Engine
from penstock.runtime.policies import SchedulingPolicy
from penstock.runtime.ports import Port
from penstock.runtime.step_times import Shuffle
from penstock.runtime.virtual import Virtual, Watch

__all__ = [
    "FakeClock",
    "HostilePort",
    "check_engine",
    "check_operator",
    "check_policy",
    "hostile",
    "shuffled",
]


class HostilePort(Port):
    """Refuses every other offer, and hands out one tuple at a time."""

    def __init__(self, name: str, capacity: int) -> None:
        super().__init__(name, capacity)
        self._refuses = False

    def offer(self, values: list[Any], born: float, notifies: bool = True) -> list[Any]:
        self._refuses = not self._refuses
        return values if self._refuses else super().offer(values, born, notifies)

    def take(self, budget: int) -> tuple[list[Any], float]:
        return super().take(min(budget, 1))


def shuffled(
    seed: int, workers: int = 3, clock: FakeClock | None = None, watch: Watch | None = None, **options: Any
) -> Engine:
    """The local engine on one thread that plays several workers; the seed is the interleaving.

    `watch` is told what each of them does.

    >>> flow = ps.Flow("doubled")
    >>> result = ps.sinks.collect()
    >>> flow.read(ps.sources.items([1, 2, 3])).map(lambda x: x * 2).write(result)
    >>> report = flow.run(shuffled(seed=7))
    >>> result.items
    [2, 4, 6]
    """

    clock = clock or FakeClock()
    return ps.engines.Local(
        driver=lambda _: Virtual(workers, clock, Shuffle(seed), watch=watch), clock=clock, **options
    )


def hostile(seed: int, workers: int = 3, **options: Any) -> Engine:
    """`shuffled`, with ports that refuse every other time, queues of one, no fusion, and preemption at every point."""
    return shuffled(seed, workers, queue_size=1, quantum=1e-9, fuse=False, port=HostilePort, **options)


def check_operator(
    operator: ps.Operator,
    *inputs: Sequence[Any],
    key: Callable[[Any], Any] | None = None,
    seeds: Iterable[int] = range(20),
    restarts: bool = True,
) -> list[list[Any]]:
    """Run a driver loop on these inputs in every way; returns what each output port gave, the same each time.

    `restarts` also begins the loop anew at every wait, which shows what it does not keep in `ctx.state`.

    >>> class Pairs(ps.Operator):
    ...     async def process(self, ctx):
    ...         port = ctx.inputs[0]
    ...         while await ctx.wait_all({port: 2}):
    ...             await ctx.emit((port.pop(), port.pop()))
    >>> check_operator(Pairs(), [1, 2, 3, 4, 5])
    [[(1, 2), (3, 4)]]
    """

    def build(flow: ps.Flow) -> Any:
        streams: list[Any] = [flow.read(ps.sources.items(list(values))) for values in inputs]
        if key is not None:
            streams = [stream.key_by(key) for stream in streams]
        added = flow.add(operator, *streams)
        return () if added is None else added if isinstance(added, tuple) else (added,)

    expected = _outputs(build, ps.engines.Sequential())
    engines: list[tuple[str, Engine]] = [(f"hostile(seed={seed})", hostile(seed)) for seed in seeds]
    if restarts:
        engines.append(("Sequential(restart='every-wait')", ps.engines.Sequential(restart="every-wait")))
    for name, engine in engines:
        _compare(name, _outputs(build, engine), expected)
    return expected


def check_policy(policy: SchedulingPolicy, seeds: Iterable[int] = range(20)) -> None:
    """Every flow of a small collection gives the right result under this policy, whatever the interleaving."""
    for seed in seeds:
        check_engine(lambda seed=seed: shuffled(seed, policy=policy, queue_size=2))  # type: ignore[misc]


def check_engine(make_engine: Callable[[], Engine]) -> None:
    """Every flow of a small collection gives the same on this engine as on the sequential one."""
    for name, build in FLOWS.items():
        _compare(f"flow {name!r}", _outputs(build, make_engine()), _outputs(build, ps.engines.Sequential()))


def _outputs(build: Callable[[ps.Flow], Iterable[Any]], engine: Engine) -> list[list[Any]]:
    flow = ps.Flow("check")
    sinks: list[Any] = []
    for stream in build(flow):
        sinks.append(ps.sinks.collect())
        stream.write(sinks[-1])
    flow.run(engine)
    return [sink.items for sink in sinks]


def _compare(where: str, found: list[list[Any]], expected: list[list[Any]]) -> None:
    for port, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for index, (our, their) in enumerate(zip(ours, theirs, strict=False)):
            if our != their:
                raise AssertionError(f"{where}: output {port}, tuple {index} is {our!r}, and should be {their!r}")
        if len(ours) != len(theirs):
            raise AssertionError(f"{where}: output {port} has {len(ours)} tuples, and should have {len(theirs)}")


class _Alternate(ps.Operator):
    """Takes from its two inputs in turn."""

    inputs = 2
    outputs = 2

    async def process(self, ctx: Any) -> None:
        left, right = ctx.inputs
        while await ctx.wait_all({(right if ctx.state.get("is_right") else left): 1}):
            is_right = ctx.state.get("is_right", False)
            ctx.state["is_right"] = not is_right
            await ctx.emit((right if is_right else left).pop(), port=int(is_right))


class _PerKey(ps.Operator):
    kind = "keyed"

    async def process(self, ctx: Any) -> None:
        async for value in ctx.inputs[0]:
            ctx.state["count"] = ctx.state.get("count", 0) + 1
            await ctx.emit((ctx.key, ctx.state["count"], value))
        await ctx.emit((ctx.key, "last of", ctx.state["count"]))


def _numbers(flow: ps.Flow, count: int = 60) -> Any:
    return flow.read(ps.sources.items(list(range(count))))


def _functions(flow: ps.Flow) -> Iterable[Any]:
    numbers = _numbers(flow).filter(lambda x: x % 4).map(lambda x: x * 3).flat_map(lambda x: [x, -x])
    return [numbers.scan(lambda total, x: (total + x, (total, x)), init=0), numbers.map_batch(lambda xs: xs)]


def _errors(flow: ps.Flow) -> Iterable[Any]:
    inverse = _numbers(flow, 20).map(lambda x: 12 // (x % 5), name="inverse", on_error="dead-letter")
    return [inverse.map(lambda x: 6 // x, on_error="skip"), flow.dead_letters("inverse")]


def _keyed(flow: ps.Flow) -> Iterable[Any]:
    by_digit = _numbers(flow).key_by(lambda x: x % 10)
    return [by_digit.count(), by_digit.reduce(lambda a, b: a + b), by_digit.dedupe(), flow.add(_PerKey(), by_digit)]


def _windows(flow: ps.Flow) -> Iterable[Any]:
    keyed = _numbers(flow).map(lambda x: (x % 3, x // 2 + x % 7)).key_by(lambda value: value[0])

    def time(value: Any) -> Any:
        return value[1]

    specs = [ps.windows.tumbling(5, time), ps.windows.sliding(6, 4, time, lateness=3), ps.windows.session(2, time)]
    return [keyed.window(spec).collect() for spec in specs]


def _forks(flow: ps.Flow) -> Iterable[Any]:
    numbers = _numbers(flow)
    small, large = numbers.branch(lambda x: x < 40)
    left, right = flow.add(_Alternate(), small, large)
    return [small.zip(large), numbers.map(str).zip(numbers), left, right]


FLOWS: dict[str, Callable[[ps.Flow], Iterable[Any]]] = {
    "functions": _functions,
    "errors": _errors,
    "keyed": _keyed,
    "windows": _windows,
    "forks": _forks,
}
"""Small flows that show every kind of operator; order is defined in all of them."""
