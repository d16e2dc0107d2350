"""Every exception that Penstock raises on purpose, in one tree under `PenstockError`, and the words for users' own."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable
from typing import TypeVar

_LONGEST_REPR = 200
_LONGEST_MESSAGE = 2_000
_LONGEST_TRACEBACK = 20_000


AnyError = TypeVar("AnyError", bound=BaseException)


def caused_by(error: AnyError, cause: BaseException | None) -> AnyError:
    """The same error, with what it comes of: for errors that are not raised where they are made."""
    error.__cause__ = cause
    return error


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


class ConservationError(PenstockError):
    """Tuples were lost, or came twice, between what was read and what is to be published: a defect of Penstock."""

    @classmethod
    def of(cls, flow: str, difference: str, consequence: str) -> ConservationError:
        """The one way to say it.

        >>> str(ConservationError.of("f", "'a' sent 3 tuples and 'b' got 2", "Nothing was published"))[:83]
        "flow 'f': tuples don't add up: 'a' sent 3 tuples and 'b' got 2. Nothing was publish"
        """
        return cls(
            f"flow {flow!r}: tuples don't add up: {difference}. {consequence}. This is a defect of Penstock, not of "
            "the flow: please report it, with this message, the run's report and its journal"
        )


class PolicyError(PenstockError):
    """A scheduling policy or a controller raised, or wants what can't be; `__cause__` is the original exception."""


def short_repr(value: object) -> str:
    """The value as an error message shows it: never more than a line, whatever its `__repr__` does.

    >>> short_repr("x" * 1000)[-10:]
    "xx…' (str)"
    """
    text = _safely(lambda: repr(value), lambda error: f"<{_type_name(value)} whose repr raises {_type_name(error)}>")
    if len(text) <= _LONGEST_REPR:
        return text
    return f"{text[: _LONGEST_REPR - 1]}…{text[-1]} ({_type_name(value)})"


def shown_command(*words: str) -> str:
    """A command as one can copy it from a message.

    >>> print(shown_command("chmod", "go-w", "my flows/checkpoint"))
    `chmod go-w 'my flows/checkpoint'`
    """
    return f"`{shlex.join(words)}`"


def describe_exception(error: BaseException) -> str:
    """`TypeName: message`, the form in which dead letters carry an error; a message that is too long is cut.

    >>> describe_exception(ValueError("no such page"))
    'ValueError: no such page'
    >>> len(describe_exception(ValueError("x" * 1_000_000))) < 2100
    True
    """
    message = _safely(lambda: str(error), lambda other: f"<its str raises {_type_name(other)}>")
    name = _type_name(error)
    return f"{name}: {cut(message)}" if message else name


def describe_traceback(error: BaseException) -> str:
    """The traceback of an exception, as Python prints it; one that is too long is cut in the middle."""
    text = _safely(
        lambda: "".join(traceback.format_exception(type(error), error, error.__traceback__)),
        lambda _: describe_exception(error),
    )
    return cut(text, _LONGEST_TRACEBACK)


def cut(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """A text that is too long for a message without its middle; its end often says what happened.

    >>> cut("x" * 50_000_000)[995:1030]
    'xxxxx … (49,998,000 left out) … xxx'
    """
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … ({len(text) - 2 * half:,} left out) … {text[-half:]}"


def _safely(text: Callable[[], str], otherwise: Callable[[BaseException], str]) -> str:
    """A text that users' code makes; what that raises must not hide the error that is being reported."""
    try:
        return str.__str__(text())  # a plain one: a subclass could do anything when it is cut or joined
    except BaseException as error:
        return otherwise(error)


def _type_name(value: object) -> str:
    return type.__dict__["__name__"].__get__(type(value))  # type: ignore[no-any-return]
