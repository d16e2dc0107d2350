"""Keyed functions: the table that holds their states, and the built-in ones composed from it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from penstock.operators.kept import Changed, Kept, Touched, changed_of
from penstock.operators.times import Span, Time

_MISSING: Any = object()


class StateTable:
    """The states of one operator by key, each forgotten once it was left alone for longer than `ttl`.

    >>> table = StateTable(init=int, ttl=Span(10))
    >>> table.put("a", 5, now=0)
    >>> table.get("a", now=10), table.get("a", now=11)
    (5, 0)
    """

    def __init__(self, init: Callable[[], Any], ttl: Span | None = None, knows_changes: bool = False) -> None:
        self._init = init
        self._ttl = ttl
        self._states: OrderedDict[Hashable, tuple[Any, Any]] = OrderedDict()
        self._now: Any = None
        self.touched: Touched | None = Touched() if knows_changes else None
        """Where changes are asked for."""

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: Hashable, now: Time | None = None) -> Any:
        if self._ttl is not None:
            self._forget(now)
        state, _ = self._states.get(key, (_MISSING, None))
        if state is _MISSING:
            return self._init()
        if self.touched is not None:  # a function may change it in place, and then fail
            self.touched.changed(key)
        return state

    def put(self, key: Hashable, state: Any, now: Time | None = None) -> None:
        if self.touched is not None:
            (self.touched.changed if key in self._states else self.touched.came)(key)
        self._states[key] = (state, self._latest(now))
        if self._ttl is not None:
            self._states.move_to_end(key)

    def snapshot(self) -> Kept:
        """Everything that it remembers: states with the time at which each was left alone, and the latest time."""
        return Kept(self._states, self._now)

    def restore(self, kept: Kept) -> None:
        self._states = OrderedDict(sorted(kept.by_key.items(), key=lambda pair: pair[1][1]))
        self._now = kept.rest

    def take_changed(self) -> Changed:
        """The same of those that were touched since this was last called."""
        assert self.touched is not None
        touched, self.touched = self.touched, Touched()
        return changed_of(touched, self._states, self._now)

    def _latest(self, now: Time | None) -> Any:
        """Time never goes back: the running maximum, in the order of the stream."""
        if self._now is None or (now is not None and now > self._now):
            self._now = now
        return self._now

    def _forget(self, now: Time | None) -> None:
        assert self._ttl is not None
        latest = self._latest(now)
        if latest is None:
            return
        horizon = latest - self._ttl.along(latest)
        while self._states:
            key, (_, touched) = next(iter(self._states.items()))
            if touched >= horizon:
                return
            del self._states[key]
            if self.touched is not None:
                self.touched.went(key)


def counting(count: int, _value: Any) -> tuple[int, int]:
    """One more: the function behind `count()`."""
    return count + 1, count + 1


def first_only(seen: bool, value: Any) -> tuple[bool, tuple[Any, ...]]:
    """The first of a key and nothing after it: the function behind `dedupe()`."""
    return True, () if seen else (value,)


class Reducing:
    """The running result of a two-argument function: what stands behind `reduce(fn)`."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", "reduce")

    def __call__(self, state: tuple[Any, ...], value: Any) -> tuple[tuple[Any, ...], Any]:
        result = self.fn(state[0], value) if state else value
        return (result,), result


def constant_factory(init: Any) -> Callable[[], Any]:
    """`init` as a factory: a callable stays as it is, a plain value is what every call gives."""
    if callable(init):
        factory: Callable[[], Any] = init
        return factory
    return lambda: init
