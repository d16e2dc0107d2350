"""The only words in which a run reports that a user's code has failed."""

from __future__ import annotations

from typing import Any

from penstock.errors import FlowError, OperatorError, PenstockError, describe_exception, short_repr
from penstock.flow.nodes import DeadLetter, Node


def reported(flow: str, node: Node, value: Any, error: Exception) -> PenstockError:
    """The error of an operator as its user sees it; raise it `from` the original."""
    if isinstance(error, FlowError):
        return type(error)(f"operator {node.name!r}: {error} ({node.where})")
    if isinstance(error, PenstockError):
        return error
    return OperatorError(
        f"operator {node.name!r} of flow {flow!r} ({node.where}) failed on {short_repr(value)}: "
        f"{describe_exception(error)}",
        operator=node.name,
        value=value,
    )


def is_fatal(node: Node, error: Exception) -> bool:
    """Whether the flow ends: a graph that can't work always ends it, the rest is up to the operator's `on_error`."""
    return node.on_error == "fail" or isinstance(error, FlowError)


def dead_letter(node: Node, value: Any, error: Exception) -> DeadLetter:
    return DeadLetter(node.name, value, describe_exception(error))


def survived(flow: str, node: Node, value: Any, error: Exception) -> DeadLetter | None:
    """Raise what ends the flow; else return the dead letter, where the operator wants one."""
    if is_fatal(node, error):
        raise reported(flow, node, value, error) from error
    return dead_letter(node, value, error) if node.on_error == "dead-letter" else None


def popped_value(popped: list[Any]) -> Any:
    """What a driver loop was working on: the tuple it had taken, or all of them."""
    return popped[0] if len(popped) == 1 else tuple(popped)
