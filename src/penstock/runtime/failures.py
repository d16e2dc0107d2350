"""The only words in which a run reports that a user's code has failed.

Whatever that raises: `SystemExit` and the like too, which would end a thread and not the run.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from penstock.errors import (
    FlowError,
    OperatorError,
    PenstockError,
    SinkError,
    SourceError,
    caused_by,
    describe_exception,
    short_repr,
)
from penstock.flow.nodes import DeadLetter, Node, Reads, Writes
from penstock.runtime.standing import is_ours


class Failure(Exception):
    """Unwinds the work of a cell after an error that ends the flow; `place` is the cell's rank."""

    def __init__(self, place: float, error: PenstockError) -> None:
        super().__init__(str(error))
        self.place = place
        self.error = error


def reported(flow: str, node: Node, value: Any, error: BaseException) -> PenstockError:
    """The error of an operator as its user sees it, with the original as its cause, unless it is that itself."""
    found: PenstockError
    if _is_users_own(node, error) or not isinstance(error, PenstockError):
        what = f"operator {node.name!r} of flow {flow!r} ({node.where}) failed on {short_repr(value)}"
        found = OperatorError(f"{what}: {describe_exception(error)}", operator=node.name, value=value)
    elif isinstance(error, FlowError):
        found = FlowError(f"operator {node.name!r}: {error} ({node.where})")
    else:
        return error
    return caused_by(found, error)


def told(flow: str, nodes: Sequence[Node], error: BaseException, doing: str = "") -> PenstockError:
    """An error that is no single tuple's fault, or of an unknown one, as the user of these operators sees it."""
    names = " or ".join(repr(node.name) for node in nodes)
    if type(error) in (SourceError, SinkError) and names not in str(error):
        # What is read or written says what is wrong, but not which operator does.
        named = type(error)(f"{error} ({names} of flow {flow!r}, {nodes[0].where})")
        return caused_by(named, error.__cause__)  # type: ignore[return-value]
    if isinstance(error, PenstockError) and not _is_users_own(nodes[0], error):
        return error
    message = f"of flow {flow!r} ({nodes[0].where}) failed{doing}: {describe_exception(error)}"
    found: PenstockError
    match nodes[0].kind:
        case Reads():
            found = SourceError(f"source {names} {message}")
        case Writes():
            found = SinkError(f"sink {names} {message}")
        case _:
            found = OperatorError(f"operator {names} {message}", operator=nodes[0].name)
    return caused_by(found, error)


def is_fatal(node: Node, error: BaseException) -> bool:
    """Whether the flow ends: the operator's `on_error` decides about errors.

    A graph that can't work always ends it, and so does what is no `Exception`: `SystemExit`, `GeneratorExit`,
    `CancelledError` say that something is to end, not that a tuple is bad.
    """
    cannot_work = isinstance(error, FlowError) and not _is_users_own(node, error)
    return node.on_error == "fail" or cannot_work or not isinstance(error, Exception)


def _is_users_own(node: Node, error: BaseException) -> bool:
    """Whether an error of our tree came out of the user's code: then that is on its way here.

    Sources are asked to raise a `SourceError`, and sinks a `SinkError`.
    """
    asked = {Reads: SourceError, Writes: SinkError}.get(type(node.kind))
    if not isinstance(error, PenstockError) or type(error) is asked:
        return False
    return any(not is_ours(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__))


def dead_letter(node: Node, value: Any, error: BaseException) -> DeadLetter:
    return DeadLetter(node.name, value, describe_exception(error))


def survived(flow: str, node: Node, value: Any, error: BaseException) -> DeadLetter | None:
    """Raise what ends the flow; else return the dead letter, where the operator wants one."""
    if is_fatal(node, error):
        raise reported(flow, node, value, error)
    return dead_letter(node, value, error) if node.on_error == "dead-letter" else None


def popped_value(popped: list[Any]) -> Any:
    """What a driver loop was working on: the tuple it had taken, or all of them."""
    return popped[0] if len(popped) == 1 else tuple(popped)
