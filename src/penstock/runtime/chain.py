"""Function operators as generated code: a chain of them is one loop, without calls of ours between them.

Each operator has a line of its own, so an error's traceback tells the operator, and the variables tell the tuple; the
rest of the chunk goes on in place, and nothing runs twice. One `try` serves all the steps of a loop: it costs an
instruction or two, which one for each step would multiply.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from penstock.flow.nodes import Applies, Node, Remembers
from penstock.operators.functions import Form, listed
from penstock.operators.kept import Ageing, Changed, Kept
from penstock.operators.state import StateTable
from penstock.operators.times import checked_time
from penstock.ordering.keys import StoredKey, key_bytes, stored_key

MOST_EXPANDING = 8
"""Each step that makes several tuples of one is a loop in a loop, and Python nests no more than twenty blocks."""

Fail = Callable[[int, Any, BaseException], None]
"""Called with the number of the step, its input and the error; raises to end the loop."""
Loop = Callable[[Sequence[Any], Sequence[list[Any]], Callable[..., None], list[int]], None]
"""`loop(values, outputs, fail, passed)` appends to the outputs, and counts in `passed` what its steps let through.

A numbered one has two outputs, what came out and the number of the value that it came from, and tells `fail` that
number as well.
"""
Part = dict[str, Any]
"""What one step needs besides its code: its function, its states."""
Steps = dict[int, tuple[int, str]]
"""The step that a line of the loop belongs to, and the variable that holds the step's input."""


def can_be_chained(node: Node) -> bool:
    """Whether a node can be a step of a generated loop."""
    match node.kind:
        case Applies():
            return node.kind.form in (Form.MAP, Form.FILTER, Form.FLAT_MAP, Form.INSPECT, Form.BRANCH)
        case Remembers():
            return True
    return False


def is_expanding(node: Node) -> bool:
    """Whether several tuples may come out for one that goes in."""
    match node.kind:
        case Applies():
            return node.kind.form is Form.FLAT_MAP
        case Remembers():
            return node.kind.many or node.kind.ttl is not None
    return False


def changes_number(node: Node) -> bool:
    """Whether other than one tuple may come out for one that goes in."""
    is_selective = isinstance(node.kind, Applies) and node.kind.form in (Form.FILTER, Form.BRANCH)
    return is_selective or is_expanding(node)


@dataclass(frozen=True)
class Chain:
    """The generated loops of some operators: all in one, and each by itself, over the same parts."""

    nodes: Sequence[Node]
    parts: Sequence[Part]
    whole: Loop
    counted: frozenset[int]
    """The steps whose output the whole loop counts: those that change the number of tuples, but for the last of them.

    For the others it is known from what went in or came out.
    """
    last_changing: int | None
    is_numbered: bool = False

    @functools.cached_property
    def steps(self) -> list[Loop]:
        """Each step as a loop of its own; most runs are over before they are asked for."""
        numbered = self.is_numbered
        return [_loop([node], [part], numbered=numbered) for node, part in zip(self.nodes, self.parts, strict=True)]

    def counts(
        self, received: int, emitted: int, passed: Sequence[int], failures: Sequence[int]
    ) -> list[tuple[int, int]]:
        """What each step received and emitted, when the whole loop received and emitted so many.

        Forward from what went in; but behind the last step that changes the number, backward from what came out.
        """
        counts, now = [], received
        for place in range(len(self.nodes)):
            before = now
            if place == self.last_changing:
                now = emitted + sum(failures[place + 1 :])
            elif place in self.counted:
                now = passed[place]
            else:
                now -= failures[place]
            counts.append((before, now))
        return counts


def make_part(node: Node, now: Callable[[], float], knows_changes: bool = False) -> Part:
    """The function of a node, and fresh states, which may know what has changed."""
    kind = node.kind
    assert isinstance(kind, Applies | Remembers)
    part: Part = {"f": own_copy(kind.fn)}
    if isinstance(kind, Remembers):
        if kind.key is not None:
            part["key"] = own_copy(kind.key.fn)
        if kind.ttl is not None:
            part["remember"] = _Remembering(kind, now, knows_changes)
        else:
            part["states"] = Ageing() if knows_changes else {}
            part["absent"] = _Absent(part["states"], kind.init)
    return part


def own_copy(function: Callable[..., Any], has_gil: bool | None = None) -> Callable[..., Any]:
    """The function itself; without a GIL a copy, for threads that call one object fight for its reference count.

    >>> double = lambda x: 2 * x
    >>> own_copy(double, has_gil=True) is double, own_copy(double, has_gil=False) is double
    (True, False)
    >>> own_copy(double, has_gil=False)(21)
    42
    """
    if has_gil is None:
        has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if has_gil or not isinstance(function, FunctionType):
        return function
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(copy, function)


def kept_of(part: Part) -> Kept:
    """The states in a part, for a snapshot."""
    if "remember" in part:
        kept: Kept = part["remember"].states.snapshot()
        return kept
    states = part["states"]
    return Kept(_stored(states.everything() if isinstance(states, Ageing) else states))


def changed_in(part: Part) -> Changed:
    """The states in a part that have changed since this was last asked."""
    if "remember" in part:
        changed: Changed = part["remember"].states.take_changed()
        return changed
    return Changed(_stored(part["states"].take_changed()))


def _stored(states: Mapping[Any, Any]) -> dict[Any, Any]:
    return {stored_key(key): state for key, state in states.items()}


def restore_part(part: Part, kept: Kept) -> None:
    """Put the states of a snapshot into a part."""
    if "remember" in part:
        part["remember"].states.restore(kept)
        return
    found = {normal_key(key.key) if isinstance(key, StoredKey) else key: state for key, state in kept.by_key.items()}
    states = part["states"]
    (states.put_aside if isinstance(states, Ageing) else states.update)(found)


def compile_chain(nodes: Sequence[Node], parts: Sequence[Part], numbered: bool = False) -> Chain:
    """Generate the loop of a chain over these parts."""
    changing = [place for place, node in enumerate(nodes) if changes_number(node)]
    counted = frozenset(changing[:-1])
    whole = _loop(nodes, parts, counted, numbered)
    return Chain(nodes, parts, whole, counted, changing[-1] if changing else None, numbered)


def _loop(
    nodes: Sequence[Node], parts: Sequence[Part], counted: frozenset[int] = frozenset(), numbered: bool = False
) -> Loop:
    scope: dict[str, Any] = {"listed": listed, "FLAT_MAP": Form.FLAT_MAP, "located": None}
    for place, part in enumerate(parts):
        scope.update({f"{name}{place}": value for name, value in part.items()})
    source, steps = _Writer(numbered).written(nodes, tuple(scope), counted)
    scope["located"] = partial(_located, steps)
    exec(_code(source), scope)
    loop: Loop = scope["loop"]
    return loop


@functools.lru_cache(maxsize=256)
def _code(source: str) -> CodeType:
    """Loops of the same shape share their code: what differs are the defaults of their parameters."""
    return compile(source, "<penstock chain>", "exec")


def _located(steps: Steps, error: BaseException, variables: dict[str, Any]) -> tuple[int, Any, BaseException]:
    """The step that raised, by the line of the loop that the traceback begins with, and its input."""
    line = None if error.__traceback__ is None else error.__traceback__.tb_lineno
    place, variable = steps.get(line or 0, (0, "v0"))  # what comes from outside may come anywhere
    return place, variables.get(variable), error


class _Writer:
    """Writes the source of a loop; `v0` is the input of the first step, `v1` of the second, …"""

    def __init__(self, is_numbered: bool) -> None:
        self._is_numbered = is_numbered
        self._lines: list[str] = []
        self._indent = 0
        self._value = ""
        self._steps: Steps = {}

    def written(self, nodes: Sequence[Node], names: Sequence[str], counted: frozenset[int]) -> tuple[str, Steps]:
        parameters = "".join(f", {name}={name}" for name in names)
        self._line(f"def loop(values, outputs, fail, passed{parameters}):")
        self._indent = 1
        self._line("out, others = outputs[0], outputs[-1]")
        for place in sorted(counted):
            self._line(f"n{place} = 0")
        self._line("try:")
        self._indent = 2
        if self._is_numbered:
            self._each("number, v0", "enumerate(values)")
            self._value = "v0"
        else:
            self._each("v0", "values")
        for place, node in enumerate(nodes):
            match node.kind:
                case Applies():
                    self._function(place, node.kind)
                case Remembers():
                    self._stateful(place, node.kind)
            if place in counted:
                self._line(f"n{place} += 1")
        if self._value:
            # Not a bound method kept in a variable: Python makes a single instruction of `list.append` written out.
            self._line(f"out.append({self._value})")
            if self._is_numbered:
                self._line("others.append(number)")
        self._caught()
        self._indent = 1
        self._line("finally:")
        self._indent = 2
        for place in sorted(counted):
            self._line(f"passed[{place}] += n{place}")
        self._line("pass")
        return "\n".join(self._lines), self._steps

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def _each(self, value: str, values: str) -> None:
        """Go on with each of the values; one `try` serves all the steps up to the next such loop."""
        self._line(f"for {value} in {values}:")
        self._indent += 1
        self._line("try:")
        self._indent += 1
        self._value = value

    def _caught(self) -> None:
        self._indent -= 1
        self._line("except BaseException as error:")
        self._indent += 1
        self._line("fail(*located(error, locals())" + (", number)" if self._is_numbered else ")"))
        self._line("continue")
        self._indent -= 1

    def _step(self, place: int, *lines: str) -> None:
        for line in lines:
            self._line(line)
            self._steps[len(self._lines)] = place, self._value

    def _function(self, place: int, kind: Applies) -> None:
        value, result = self._value, f"v{place + 1}"
        call = f"f{place}({value})"
        match kind.form:
            case Form.MAP:
                self._step(place, f"{result} = {call}")
                self._value = result
            case Form.FILTER:
                self._step(place, f"if not {call}: continue")
            case Form.INSPECT:
                self._step(place, call)
            case Form.FLAT_MAP:
                self._expanded(place, call)
            case Form.BRANCH:  # two outputs: it ends its chain
                self._step(place, f"(out if {call} else others).append({value})")
                self._value = ""

    def _stateful(self, place: int, kind: Remembers) -> None:
        value, result = self._value, f"v{place + 1}"
        if kind.ttl is not None:
            self._expanded(place, f"remember{place}({value})")
            return
        self._step(
            place,
            "k = None" if kind.key is None else f"k = key{place}({value})",
            f"try: s = states{place}[k]",
            f"except (KeyError, TypeError): k, s = absent{place}(k)",
        )
        if not kind.many:
            self._step(place, f"states{place}[k], {result} = f{place}(s, {value})")
            self._value = result
        else:
            self._step(place, f"s, {result} = f{place}(s, {value})", f"{result} = listed(FLAT_MAP, f{place}, {result})")
            self._step(place, f"states{place}[k] = s")
            self._caught()
            self._each(result, result)
        if kind.with_key:
            self._line(f"{result} = (k, {result})")

    def _expanded(self, place: int, call: str) -> None:
        result = f"v{place + 1}"
        self._step(place, f"{result} = listed(FLAT_MAP, f{place}, {call})")
        self._caught()
        self._each(result, result)


class _Absent:
    """Makes the state of a key that is not there, and checks that it can be a key: known ones pass unseen."""

    def __init__(self, states: dict[Any, Any], init: Callable[[], Any]) -> None:
        self._states = states
        self._init = init

    def __call__(self, key: Any) -> tuple[Any, Any]:
        key = normal_key(key)
        try:
            return key, self._states[key]
        except KeyError:
            return key, self._init()


def normal_key(key: Any) -> Any:
    """A key as it is looked up; `FlowError` for what can't be one."""
    identity = key_bytes(key)
    if identity == b"fnan":
        return math.nan  # the one object that every NaN is looked up by
    return _with_one_nan(key) if isinstance(key, tuple) and b"fnan" in identity else key


def _with_one_nan(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_with_one_nan, key))
    return math.nan if isinstance(key, float) and math.isnan(key) else key


class _Remembering:
    """A function with states that are forgotten after a while; returns the outputs of one value."""

    def __init__(self, kind: Remembers, now: Callable[[], float], knows_changes: bool) -> None:
        self._kind = kind
        self._now = now
        self.states = StateTable(kind.init, kind.ttl, knows_changes)

    def __call__(self, value: Any) -> list[Any]:
        kind = self._kind
        key = None if kind.key is None else kind.key.fn(value)
        identity = key_bytes(key)
        now = self._now() if kind.time is None else checked_time(kind.time(value))
        state, output = kind.fn(self.states.get(identity, now), value)
        outputs = listed(Form.FLAT_MAP, kind.fn, output) if kind.many else [output]
        self.states.put(identity, state, now)
        return [(key, one) for one in outputs] if kind.with_key else outputs
