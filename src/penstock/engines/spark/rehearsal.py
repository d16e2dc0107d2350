"""Which operator killed a worker: the only code that runs a task in a process of its own first, which may die.

A batch that a dead worker has ended runs once more, and each of its tasks begins with a rehearsal: a forked child does
all of the work, throws its output away, and writes down before each call which operator works on which tuple. If the
child dies, its last note tells which operator it was; if not, the task goes on as always. So nothing is written down
while all is well.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from mmap import mmap
from typing import Any

from penstock.clock import SystemClock
from penstock.engines.spark.pickling import dumps
from penstock.engines.spark.stages import GroupTask, Level
from penstock.errors import OperatorError, caused_by, cut, describe_exception, short_repr
from penstock.flow.nodes import Applies, Graph, Key, Kind, Loops, Node, Remembers, Waits

_POLL_SECONDS = 0.005
_SILENT_SECONDS = 60.0
"""A child that has called nothing for so long has perhaps inherited a lock that no thread will release."""
_NOTE_BYTES = 1 << 16
_SIZE = struct.Struct("<qq")
_RAISED, _DONE = 87, 88
"""The exit codes of a child in which something that is no `Exception` was raised, and of one that came to its end; any
codes of one's own would do, but 0, with which functions end processes."""
_LONGEST_TRACE = 4_000


@dataclass(frozen=True)
class Note:
    """What was being done, and on what."""

    operator: str
    shown: str
    value: bytes | None = None
    raised: str = ""


class Notes:
    """Memory that a child shares with its parent, and that outlives it: the last note alone."""

    def __init__(self) -> None:
        self._memory = mmap(-1, _NOTE_BYTES)
        self._count = 0

    def write(self, note: Note) -> None:
        data = pickle.dumps(note)
        if len(data) > _NOTE_BYTES - _SIZE.size:
            data = pickle.dumps(replace(note, value=None))
        self._count += 1
        self._memory[_SIZE.size : _SIZE.size + len(data)] = data
        self._memory[: _SIZE.size] = _SIZE.pack(self._count, len(data))

    def count(self) -> int:
        count: int = _SIZE.unpack(self._memory[: _SIZE.size])[0]
        return count

    def last(self) -> Note | None:
        count, size = _SIZE.unpack(self._memory[: _SIZE.size])
        if not count:
            return None
        note: Note = pickle.loads(self._memory[_SIZE.size : _SIZE.size + size])
        return note


def rehearsed(level: Level, work: Callable[[Level], Iterator[Any]]) -> OperatorError | None:
    """What kills the process that does this work on a level; `None` if nothing does, or if that can't be told."""
    if not hasattr(os, "fork"):
        return None
    notes = Notes()
    with tempfile.TemporaryFile() as trace:
        child = os.fork()
        if child == 0:
            _as_child(notes, trace, level, work)
        status = _awaited(child, notes)
        note = notes.last()
        if status in (None, _DONE) or note is None:
            return None
        trace.seek(0)
        return _told(level, note, status, trace.read().decode(errors="replace"))


def _as_child(notes: Notes, trace: Any, level: Level, work: Callable[[Level], Iterator[Any]]) -> None:
    code = _DONE
    try:
        faulthandler.enable(trace)
        for _ in work(noting(level, notes)):
            pass
    except Exception:
        pass  # the task itself will meet it, and report it
    except BaseException as error:
        code = _RAISED
        last = notes.last() or Note("", "")
        notes.write(replace(last, raised=describe_exception(error)))
    finally:
        os._exit(code)  # and leave alone what belongs to the parent


def _awaited(child: int, notes: Notes) -> int | None:
    """The exit code of the child, negative for a signal; `None` if it does not end."""
    clock = SystemClock()
    seen, since = notes.count(), clock.now()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if notes.count() != seen:
            seen, since = notes.count(), clock.now()
        elif clock.now() - since > _SILENT_SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        clock.sleep(_POLL_SECONDS)


def _told(level: Level, note: Note, status: int, trace: str) -> OperatorError:
    where = {node.name: f" ({node.where})" for group in level.groups for node in _nodes(group)}
    cause = note.raised if status == _RAISED and note.raised else f"the process that ran it {_end_of(status)}"
    who = f"operator {note.operator!r} of flow {level.flow!r}{where.get(note.operator, '')}"
    error = OperatorError(
        f"{who} failed on {note.shown}: {cause}",
        operator=note.operator,
        value=None if note.value is None else pickle.loads(note.value),
    )
    return caused_by(error, RuntimeError(cut(trace.strip(), _LONGEST_TRACE))) if trace.strip() else error


def _end_of(status: int) -> str:
    """
    >>> _end_of(3)
    'ended itself with exit code 3'
    >>> _end_of(-11)
    'crashed (SIGSEGV: Segmentation fault)'
    """
    if status >= 0:
        return f"ended itself with exit code {status}"
    if status == -signal.SIGKILL:
        return "was killed (SIGKILL), which the system does when memory runs out"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"crashed ({name}: {signal.strsignal(-status)})"


def noting(level: Level, notes: Notes) -> Level:
    """The same level, whose operators write down what they are called with."""

    def noted(group: GroupTask) -> GroupTask:
        for name, source in group.sources.items():
            # This process has copies of its own.
            vars(source)["read"] = _reading(name, source.read, notes)
            vars(source)["tables"] = _reading(name, source.tables, notes)
        graph = Graph(group.graph.flow, tuple(_noted(node, notes) for node in group.graph.nodes))
        keyed = tuple(_noted(node, notes) for node in group.keyed)
        return replace(group, graph=graph, keyed=keyed, on_loop=partial(_looping, notes))

    return replace(level, groups=tuple(map(noted, level.groups)))


def _looping(notes: Notes, node: Node, values: Sequence[Any]) -> None:
    _note(node, notes, values[0] if len(values) == 1 else list(values))


def _nodes(group: GroupTask) -> tuple[Node, ...]:
    return (*group.graph.nodes, *group.keyed)


def _reading(name: str, read: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    def noted(split: Any, *rest: Any) -> Iterator[Any]:
        note = Note(name, f"what it read ({split.partition}, from position {split.start})")
        notes.write(note)
        for chunk in read(split, *rest):
            yield chunk
            notes.write(note)

    return noted


def _noted(node: Node, notes: Notes) -> Node:
    return replace(node, kind=_noting(node.kind, partial(_note, node, notes)))


def _note(node: Node, notes: Notes, value: Any) -> None:
    data: bytes | None = None
    with suppress(Exception):
        data = dumps(value)
    notes.write(Note(node.name, short_repr(value), data))


def _noting(kind: Kind, note: Callable[[Any], None]) -> Kind:
    match kind:
        case Applies():
            return replace(kind, fn=_first(note, kind.fn))
        case Remembers():
            fn = kind.fn

            def remembering(state: Any, value: Any) -> tuple[Any, Any]:
                note(value)
                return fn(state, value)

            return replace(kind, fn=remembering, key=kind.key and _key(note, kind.key))
        case Waits():
            times = tuple(_first(note, time) for time in kind.times)
            return replace(kind, keys=tuple(_key(note, key) for key in kind.keys), times=times)
        case Loops():
            return replace(kind, keys=tuple(_key(note, key) for key in kind.keys))
    return kind


def _key(note: Callable[[Any], None], key: Key) -> Key:
    return replace(key, fn=_first(note, key.fn))


def _first(note: Callable[[Any], None], fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def noted(value: Any) -> Any:
        note(value)
        return fn(value)

    return noted
