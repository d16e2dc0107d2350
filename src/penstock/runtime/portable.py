"""Exceptions on their way from one process to another."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import cloudpickle

from penstock import errors
from penstock.errors import OperatorError, PenstockError, caused_by, cut, describe_exception, describe_traceback

_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class _Told:
    """An exception that travels: itself, if that can be, and what can be told of it in any case."""

    itself: bytes | None
    kind: str
    message: str
    operator: str
    cause: str
    traceback: str


def portable(error: BaseException) -> bytes:
    """An exception as bytes, with its cause and the text of its traceback; or what can be told of it."""
    cause = error.__cause__
    raised = cause if cause is not None else error
    told = _Told(
        _pickled(error, cause),
        type(error).__name__,
        cut(_text(error)) if isinstance(error, PenstockError) else describe_exception(error),
        str(getattr(error, "operator", "")),
        "" if cause is None else describe_exception(cause),
        describe_traceback(raised),
    )
    return pickle.dumps(told)


def _pickled(error: BaseException, cause: BaseException | None) -> bytes | None:
    """Only if it comes back as what it was: pickling, and what it takes to undo it, may be the user's code."""
    try:
        data: bytes = cloudpickle.dumps((error, cause))
        if len(data) <= _MOST_BYTES and type(pickle.loads(data)[0]) is type(error):
            return data
    except BaseException:
        pass
    return None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return describe_exception(error)


def revived(data: bytes) -> BaseException:
    """The exception, with its cause, and with the traceback where that was raised as the cause of all."""
    told: _Told = pickle.loads(data)
    found, cause = _unpickled(told)
    elsewhere = _Elsewhere(told.traceback)
    if cause is not None:
        return caused_by(found, caused_by(cause, elsewhere))
    # The words of our own errors are all there is to say.
    return found if isinstance(found, PenstockError) else caused_by(found, elsewhere)


def _unpickled(told: _Told) -> tuple[BaseException, BaseException | None]:
    try:
        if told.itself is not None:
            error, cause = pickle.loads(told.itself)
            return error, cause
    except BaseException:  # what could be made there can't be made here
        pass
    cause = RuntimeError(told.cause) if told.cause else None
    if told.kind == OperatorError.__name__:
        return OperatorError(told.message, operator=told.operator), cause
    kind = getattr(errors, told.kind, RuntimeError)
    made = kind if isinstance(kind, type) and issubclass(kind, PenstockError) else RuntimeError
    return made(told.message), cause


class _Elsewhere(Exception):
    """The traceback of an exception in another process, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'
