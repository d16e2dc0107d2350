"""Keyed streams: the methods that add operators with a state for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, TypeVar, get_args

from penstock.errors import FlowError
from penstock.flow.checks import checked_function, name_of
from penstock.flow.nodes import Key, Kind, OnError, PortRef, Remembers, Waits
from penstock.flow.stream import Stream
from penstock.operators.base import Operator
from penstock.operators.join import Join, JoinKind
from penstock.operators.state import Reducing, constant_factory, counting, first_only
from penstock.operators.times import Span, Time
from penstock.operators.windows import COLLECT, COUNT, Aggregate, OnLate, WindowResult, WindowSpec, window_logic

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
R = TypeVar("R")


class KeyedStream(Generic[K, T]):
    """A stream whose values have keys; made by `stream.key_by(…)`."""

    def __init__(self, stream: Stream[T], key: Key) -> None:
        self.stream = stream
        self.key = key

    def stateful_map(
        self,
        fn: Callable[[S, T], tuple[S, U]],
        init: Callable[[], S],
        ttl: float | timedelta | None = None,
        name: str | None = None,
        replicas: int | None = None,
        on_error: OnError = "fail",
        time: Callable[[T], Time] | None = None,
    ) -> Stream[U]:
        """`fn(state, value)` returns its key's next state and an output.

        A state left alone for longer than `ttl` is forgotten: by the running maximum of `time`, or by the clock.
        """
        return Stream(
            self.stream.flow,
            self._remembered("stateful_map", fn, init, ttl, name, replicas, on_error, time),
        )

    def stateful_flat_map(
        self,
        fn: Callable[[S, T], tuple[S, Iterable[U]]],
        init: Callable[[], S],
        ttl: float | timedelta | None = None,
        name: str | None = None,
        replicas: int | None = None,
        on_error: OnError = "fail",
        time: Callable[[T], Time] | None = None,
    ) -> Stream[U]:
        """Like `stateful_map`, with any number of outputs."""
        return Stream(
            self.stream.flow,
            self._remembered("stateful_flat_map", fn, init, ttl, name, replicas, on_error, time, many=True),
        )

    def reduce(
        self,
        fn: Callable[[T, T], T],
        name: str | None = None,
        replicas: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream[tuple[K, T]]:
        """The running `fn(result, value)` of each key, as `(key, result)`; the first value is the first result."""
        checked_function(name or name_of(fn, "reduce"), "reduce's function", fn, "result", "value")
        kind = Remembers(Reducing(fn), tuple, self.key, with_key=True)
        return self._attached(kind, name, name_of(fn, "reduce"), replicas, on_error)

    def count(
        self, name: str | None = None, replicas: int | None = None, on_error: OnError = "fail"
    ) -> Stream[tuple[K, int]]:
        """The running count of each key, as `(key, count)`."""
        return self._attached(Remembers(counting, int, self.key, with_key=True), name, "count", replicas, on_error)

    def dedupe(self, name: str | None = None, replicas: int | None = None, on_error: OnError = "fail") -> Stream[T]:
        """The first value of each key."""
        first = self._attached(Remembers(first_only, bool, self.key, many=True), name, "dedupe", replicas, on_error)
        return Stream(first.flow, first.source, self.stream.schema)

    def window(self, spec: WindowSpec) -> WindowedStream[K, T]:
        """Gather each key's values in event-time windows, made by `ps.windows`."""
        if not isinstance(spec, WindowSpec):
            raise FlowError(f"window() takes one of ps.windows, such as ps.windows.tumbling(60, time=…), not {spec!r}")
        return WindowedStream(self, spec)

    def join(
        self,
        other: KeyedStream[K, U],
        within: float | timedelta,
        time: Callable[[Any], Time] | tuple[Callable[[T], Time], Callable[[U], Time]],
        how: JoinKind = "inner",
        name: str | None = None,
        lateness: float | timedelta | None = None,
        on_late: OnLate = "drop",
        replicas: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream[tuple[Any, Any]]:
        """`(left, right)` for each pair of one key at most `within` apart; `None` for a side that is missing.

        `time` is a function for both sides, or one for each. A tuple more than `lateness` behind the latest of its own
        side goes to `on_late`; without it nothing is late, and everything is kept until the streams end.
        """
        label = name or "join"
        if not isinstance(other, KeyedStream):
            raise FlowError(
                f"operator {label!r}: join() takes another keyed stream; give the other one a key_by(…) too"
            )
        if how not in get_args(JoinKind):
            raise FlowError(f"operator {label!r}: how= is 'inner', 'left' or 'outer', not {how!r}")
        times = time if isinstance(time, tuple) else (time, time)
        for fn in times:
            checked_function(label, "time=", fn, "value")
        kind = Waits(
            Join(_span(label, "within", within), how),
            (self.key, other.key),
            (times[0], times[1]),
            None if lateness is None else _span(label, "lateness", lateness),
            on_late,
        )
        flow = self.stream.flow
        refs = (self.stream.source, flow._ref(repr(label), other))
        node = flow._add(kind, name, "join", inputs=refs, outputs=1, replicas=replicas, on_error=on_error)
        return Stream(flow, PortRef(node.name))

    def __rshift__(self, operator: Operator) -> Any:
        """`keyed >> operator` is `flow.add(operator, keyed)`."""
        return self.stream.flow.add(operator, self)

    def __repr__(self) -> str:
        return f"<KeyedStream of {self.stream!r}>"

    def _remembered(
        self,
        method: str,
        fn: Callable[..., Any],
        init: Callable[[], Any],
        ttl: float | timedelta | None,
        name: str | None,
        replicas: int | None,
        on_error: OnError,
        time: Callable[[Any], Time] | None,
        many: bool = False,
    ) -> PortRef:
        label = name or name_of(fn, method)
        checked_function(label, f"{method}'s function", fn, "state", "value")
        if not callable(init):
            raise FlowError(
                f"operator {label!r}: init= is a function that makes a key's first state, not {init!r}; "
                f"write init=lambda: {init!r}"
            )
        if time is not None:
            checked_function(label, "time=", time, "value")
        span = None if ttl is None else _span(label, "ttl", ttl)
        kind = Remembers(fn, constant_factory(init), self.key, many=many, ttl=span, time=time)
        stream: Stream[Any] = self._attached(kind, name, name_of(fn, method), replicas, on_error)
        return stream.source

    def _attached(
        self, kind: Kind, name: str | None, made_from: str, replicas: int | None, on_error: OnError
    ) -> Stream[Any]:
        stream = self.stream
        return Stream(stream.flow, stream._attached(kind, name, made_from, replicas=replicas, on_error=on_error))


class WindowedStream(Generic[K, T]):
    """A keyed stream in windows; made by `keyed.window(…)`. Each result is `(key, start, end, value)`."""

    def __init__(self, keyed: KeyedStream[K, T], spec: WindowSpec) -> None:
        self._keyed = keyed
        self._spec = spec

    def aggregate(
        self,
        init: Callable[[], S],
        add: Callable[[S, T], S],
        finish: Callable[[S], R] | None = None,
        name: str | None = None,
        merge: Callable[[S, S], S] | None = None,
        replicas: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream[WindowResult]:
        """Fold each window: `add(accumulator, value)` from `init()` on, then `finish(accumulator)`.

        `merge` joins the accumulators of two sessions that grow together; without it sessions keep their tuples.
        """
        label = name or "aggregate"
        checked_function(label, "init=", init)
        checked_function(label, "add=", add, "accumulator", "value")
        if finish is not None:
            checked_function(label, "finish=", finish, "accumulator")
        if merge is not None:
            checked_function(label, "merge=", merge, "accumulator", "accumulator")
        return self._windowed(Aggregate(init, add, finish, merge), name, "aggregate", replicas, on_error)

    def count(
        self, name: str | None = None, replicas: int | None = None, on_error: OnError = "fail"
    ) -> Stream[WindowResult]:
        """How many values each window held."""
        return self._windowed(COUNT, name, "window-count", replicas, on_error)

    def collect(
        self, name: str | None = None, replicas: int | None = None, on_error: OnError = "fail"
    ) -> Stream[WindowResult]:
        """The values of each window, in the order of the stream."""
        return self._windowed(COLLECT, name, "window-collect", replicas, on_error)

    def _windowed(
        self, aggregate: Aggregate, name: str | None, made_from: str, replicas: int | None, on_error: OnError
    ) -> Stream[WindowResult]:
        spec = self._spec
        checked_function(name or made_from, "time=", spec.time, "value")
        logic = window_logic(spec, aggregate)
        kind = Waits(logic, (self._keyed.key,), (spec.time,), spec.lateness, spec.on_late)
        return self._keyed._attached(kind, name, made_from, replicas, on_error)


def _span(operator: str, what: str, value: float | timedelta) -> Span:
    try:
        span = Span.of(value, f"{what}=")
    except ValueError as error:
        raise FlowError(f"operator {operator!r}: {error}") from None
    if span.seconds < 0:
        raise FlowError(f"operator {operator!r}: {what}={value!r} is less than 0")
    return span
