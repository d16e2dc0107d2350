"""Function operators as generated code: a chain of them is one loop, without calls of ours between them.

A `try` costs nothing until something raises, so every operator has its own: an error knows its operator and its tuple,
the rest of the chunk goes on in place, and nothing runs twice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.flow.nodes import Applies, Node, Remembers
from penstock.operators.functions import Form, listed
from penstock.operators.state import StateTable
from penstock.operators.times import checked_time
from penstock.ordering.keys import key_bytes

_NUMBERS = itertools.count()

Fail = Callable[[int, Any, Exception], None]
"""Called with the number of the operator, its input and the error; raises to end the loop."""


def can_be_chained(node: Node) -> bool:
    """Whether a node can be a step of a generated loop."""
    match node.kind:
        case Applies():
            return node.kind.form in (Form.MAP, Form.FILTER, Form.FLAT_MAP, Form.INSPECT, Form.BRANCH)
        case Remembers():
            return True
    return False


Loop = Callable[[Sequence[Any], Sequence[list[Any]], Fail, list[int]], None]
"""`loop(values, outputs, fail, passed)` appends to the outputs, and counts in `passed` what its steps let through."""


def _changes_number(node: Node) -> bool:
    """Whether other than one tuple may come out for one that goes in."""
    match node.kind:
        case Applies():
            return node.kind.form not in (Form.MAP, Form.INSPECT)
        case Remembers():
            return node.kind.many or node.kind.ttl is not None
    return True


@dataclass(frozen=True)
class Chain:
    """The generated loops of some operators: all in one, and each by itself, over the same states."""

    whole: Loop
    steps: tuple[Loop, ...]
    counted: frozenset[int]
    """The steps whose output the whole loop counts: those that change the number of tuples, but for the last of them.

    For the others it is known from what went in or came out.
    """
    last_changing: int | None
    """The last step that changes the number of tuples."""
    constants: dict[str, Any]
    """Functions and states, by the number of their step: a part of the chain can go on with them."""


def compile_chain(
    nodes: Sequence[Node], now: Callable[[], float], first: int = 0, constants: dict[str, Any] | None = None
) -> Chain:
    """Generate the loops of a chain, or of the part of one that begins with step `first` and has its `constants`."""
    known: dict[str, Any] = {} if constants is None else constants
    numbered = list(enumerate(nodes, first))
    whole, counted = _compiled(numbered, known, now)
    steps = tuple(_compiled([step], known, now)[0] for step in numbered)
    last_changing = max((place for place, node in numbered if _changes_number(node)), default=None)
    return Chain(whole, steps, counted, last_changing, known)


def _compiled(
    steps: Sequence[tuple[int, Node]], constants: dict[str, Any], now: Callable[[], float]
) -> tuple[Loop, frozenset[int]]:
    first, last = steps[0][0], steps[-1][0]
    writer = _Writer(constants, first)
    changing = [place for place, node in steps if _changes_number(node)]
    for place, node in steps:
        writer.step(place, node, is_last=place == last, is_counted=place in changing[:-1], now=now)
    scope: dict[str, Any] = dict(constants)
    exec(compile(writer.finished(first), f"<penstock chain {next(_NUMBERS)}>", "exec"), scope)
    loop: Loop = scope["loop"]
    return loop, frozenset(writer.counters)


class _Writer:
    """Writes the body of a loop, a step at a time; `v0` is the input of the first step, `v1` of the second, …"""

    def __init__(self, constants: dict[str, Any], first: int) -> None:
        self.counters: list[int] = []
        self._constants = constants
        self._names: list[str] = []
        self._lines: list[str] = []
        self._indent = 3
        self._value = f"v{first}"

    def step(self, place: int, node: Node, is_last: bool, is_counted: bool, now: Callable[[], float]) -> None:
        match node.kind:
            case Applies():
                self._function(place, node.kind, is_last)
            case Remembers():
                self._stateful(place, node.kind, now)
        if is_counted:
            self.counters.append(place)
            self._line(f"n{place} += 1")

    def finished(self, first: int) -> str:
        if self._value:
            self._line(f"append({self._value})")
        names = "".join(f", {name}={name}" for name in dict.fromkeys(self._names))
        counters = "".join(f"    n{place} = 0\n" for place in self.counters)
        passed = "".join(f"        passed[{place}] += n{place}\n" for place in self.counters)
        return (
            f"def loop(values, outputs, fail, passed{names}):\n"
            f"    append = outputs[0].append\n"
            f"    others = outputs[-1].append\n"
            f"{counters}"
            f"    try:\n"
            f"        for v{first} in values:\n"
            + "\n".join(self._lines)
            + f"\n    finally:\n{passed or '        pass'}\n"
        )

    def _line(self, text: str, deeper: int = 0) -> None:
        self._lines.append("    " * (self._indent + deeper) + text)

    def _constant(self, name: str, make: Callable[[], Any]) -> str:
        """A name that the loop knows; what it stands for is made once for all loops of the chain."""
        if name not in self._constants:
            self._constants[name] = make()
        self._names.append(name)
        return name

    def _function(self, place: int, kind: Applies, is_last: bool) -> None:
        fn = self._constant(f"f{place}", lambda: kind.fn)
        value, result = self._value, f"v{place + 1}"
        match kind.form:
            case Form.MAP:
                self._guarded(place, value, f"{result} = {fn}({value})")
                self._value = result
            case Form.FILTER:
                self._guarded(place, value, f"if not {fn}({value}): continue")
            case Form.INSPECT:
                self._guarded(place, value, f"{fn}({value})")
            case Form.FLAT_MAP:
                self._expanded(place, value, f"{fn}({value})", fn)
            case Form.BRANCH:
                assert is_last, "a branch has two outputs, so it ends its chain"
                self._guarded(place, value, f"chosen = {fn}({value})")
                self._line(f"(append if chosen else others)({value})")
                self._value = ""

    def _stateful(self, place: int, kind: Remembers, now: Callable[[], float]) -> None:
        value, result = self._value, f"v{place + 1}"
        fn = self._constant(f"f{place}", lambda: kind.fn)
        if kind.ttl is not None:
            self._constant(f"remember{place}", lambda: _Forgetting(kind, now))
            self._expanded(place, value, f"remember{place}({value})", fn)
            return
        states = self._constant(f"states{place}", dict)
        self._constant(f"absent{place}", lambda: _Absent(self._constants[states], kind.init))
        key = "None"
        if kind.key is not None:
            key_fn = kind.key.fn
            key = f"{self._constant(f'key{place}', lambda: key_fn)}({value})"
        output = "os" if kind.many else result
        lines = [
            f"k = {key}",
            f"try: s = states{place}[k]",
            f"except (KeyError, TypeError): k, s = absent{place}(k)",
            f"s, {output} = {fn}(s, {value})",
        ]
        if kind.many:
            self._constant("listed", lambda: listed)
            self._constant("FLAT_MAP", lambda: Form.FLAT_MAP)
            lines.append(f"os = listed(FLAT_MAP, {fn}, os)")
        self._guarded(place, value, *lines)
        self._line(f"states{place}[k] = s")
        if kind.many:
            self._line(f"for {result} in os:")
            self._indent += 1
        if kind.with_key:
            self._line(f"{result} = (k, {result})")
        self._value = result

    def _expanded(self, place: int, value: str, call: str, fn: str) -> None:
        self._constant("listed", lambda: listed)
        self._constant("FLAT_MAP", lambda: Form.FLAT_MAP)
        self._guarded(place, value, f"vs = listed(FLAT_MAP, {fn}, {call})")
        self._value = f"v{place + 1}"
        self._line(f"for {self._value} in vs:")
        self._indent += 1

    def _guarded(self, place: int, value: str, *lines: str) -> None:
        self._line("try:")
        for line in lines:
            self._line(line, deeper=1)
        self._line("except Exception as error:")
        self._line(f"fail({place}, {value}, error)", deeper=1)
        self._line("continue", deeper=1)


class _Absent:
    """Makes the state of a key that is not there, and checks that it can be a key: known ones pass unseen."""

    def __init__(self, states: dict[Any, Any], init: Callable[[], Any]) -> None:
        self._states = states
        self._init = init

    def __call__(self, key: Any) -> tuple[Any, Any]:
        identity = key_bytes(key)
        if identity == b"fnan":
            key = math.nan  # the one object that every NaN is looked up by
        elif isinstance(key, tuple) and b"fnan" in identity:
            key = _with_one_nan(key)
        return key, self._states[key] if key in self._states else self._init()


def _with_one_nan(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_with_one_nan, key))
    return math.nan if isinstance(key, float) and math.isnan(key) else key


class _Forgetting:
    """A function with states that are forgotten after a while; returns the outputs of one value."""

    def __init__(self, kind: Remembers, now: Callable[[], float]) -> None:
        self._kind = kind
        self._now = now
        self._states = StateTable(kind.init, kind.ttl)

    def __call__(self, value: Any) -> list[Any]:
        kind = self._kind
        key = None if kind.key is None else kind.key.fn(value)
        identity = key_bytes(key)
        now = self._now() if kind.time is None else checked_time(kind.time(value))
        state, output = kind.fn(self._states.get(identity, now), value)
        outputs = listed(Form.FLAT_MAP, kind.fn, output) if kind.many else [output]
        self._states.put(identity, state, now)
        return [(key, one) for one in outputs] if kind.with_key else outputs
