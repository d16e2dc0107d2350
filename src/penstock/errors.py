"""Every exception that Penstock raises on purpose, in one tree under `PenstockError`."""

from __future__ import annotations

_LONGEST_REPR = 200


class PenstockError(Exception):
    """The root of the tree: catch it to catch whatever Penstock reports."""


class FlowError(PenstockError):
    """A graph that can't run, found before it runs; the message says how to mend it."""


class OperatorError(PenstockError):
    """A user's function or driver loop raised; `__cause__` is the original exception with its traceback."""

    def __init__(self, message: str, *, operator: str = "", value: object = None) -> None:
        super().__init__(message)
        self.operator = operator
        self.value = value


class SourceError(PenstockError):
    """Input that can't be read: a missing file, a malformed line, a value that does not fit the schema."""


class SinkError(PenstockError):
    """Output that can't be written."""


class CheckpointError(PenstockError):
    """State that can't be kept or taken up again."""


def short_repr(value: object) -> str:
    """The value as an error message shows it: never more than a line.

    >>> short_repr("x" * 1000)[-10:]
    "xx…' (str)"
    """
    try:
        text = repr(value)
    except Exception as error:  # a broken __repr__ must not hide the error that is being reported
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    if len(text) <= _LONGEST_REPR:
        return text
    return f"{text[: _LONGEST_REPR - 1]}…{text[-1]} ({type(value).__name__})"


def describe_exception(error: BaseException) -> str:
    """`TypeName: message`, the form in which dead letters carry an error.

    >>> describe_exception(ValueError("no such page"))
    'ValueError: no such page'
    """
    message = str(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
