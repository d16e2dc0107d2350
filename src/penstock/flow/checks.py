"""Checks on single arguments, made where the user wrote them: names, functions, numbers, call sites."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Any, get_args

from penstock.errors import FlowError
from penstock.flow.nodes import CallSite, OnError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LONGEST_NAME = 120


def call_site() -> CallSite:
    """The line of the nearest caller outside Penstock."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE + os.sep):
        frame = frame.f_back
    return CallSite(frame.f_code.co_filename, frame.f_lineno)


def checked_name(what: str, name: object) -> str:
    """A name that may become part of a file name.

    >>> checked_name("operator", "score")
    'score'
    """
    if not isinstance(name, str) or not name.strip():
        raise FlowError(f"{what}: a name is a text that is not empty, not {name!r}")
    if len(name) > _LONGEST_NAME:
        raise FlowError(f"{what} {name[:20]!r}…: a name has at most {_LONGEST_NAME} characters, this one {len(name)}")
    if not name.isprintable() or re.search(r'[/\\:*?"<>|]', name) or name.strip(".") == "" or name != name.strip():
        raise FlowError(
            f"{what} {name!r}: a name can't hold / \\ : * ? \" < > | or unprintable characters, nor begin or end with "
            "a space, because it becomes part of file names"
        )
    return name


def name_of(fn: object, otherwise: str) -> str:
    """What to call an operator when the user gave no name: after its function, or after the method that made it.

    >>> name_of(len, "map"), name_of(lambda x: x, "map")
    ('len', 'map')
    """
    name = getattr(fn, "__name__", "")
    try:
        return checked_name("operator", name)
    except FlowError:
        return otherwise


def checked_function(operator: str, what: str, fn: Any, *parameters: str) -> Callable[..., Any]:
    """A callable that takes these positional arguments, or a `FlowError` that shows how it should look."""
    wanted = f"({', '.join(parameters)})"
    if not callable(fn):
        raise FlowError(f"operator {operator!r}: {what} must be a function of {wanted}, not {fn!r}")
    function: Callable[..., Any] = fn
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return function  # built-in functions that don't say what they take
    try:
        signature.bind(*parameters)
    except TypeError:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise FlowError(
            f"operator {operator!r}: {what} is called with {len(parameters)} "
            f"argument{'s' if len(parameters) != 1 else ''} {wanted}, but {name}{signature} can't be{_defined(fn)}"
        ) from None
    return function


def _defined(fn: Any) -> str:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f" (defined at {code.co_filename}:{code.co_firstlineno})" if code else ""


def checked_on_error(operator: str, on_error: object) -> OnError:
    if on_error not in get_args(OnError):
        raise FlowError(f"operator {operator!r}: on_error= is 'fail', 'skip' or 'dead-letter', not {on_error!r}")
    return on_error  # type: ignore[return-value]


def checked_replicas(operator: str, replicas: object) -> int | None:
    if replicas is None or (isinstance(replicas, int) and not isinstance(replicas, bool) and replicas >= 1):
        return replicas
    raise FlowError(
        f"operator {operator!r}: replicas= is a number from 1 up, or None for the engine to find, not {replicas!r}"
    )
