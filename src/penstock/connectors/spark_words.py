"""The only code that finds out of Spark's messages, which are pages of frames, what has happened."""

from __future__ import annotations

import re

from penstock.errors import cut

_LONGEST = 500
_TRACEBACK = "Traceback (most recent call last):"
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*(?:: |$)")
"""A Java class before a message, or alone."""
_CALLING = re.compile(r"^An error occurred while calling .*\.$")


def text_of(error: BaseException) -> str:
    """All that an exception says; never nothing, whatever its `__str__` does."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"<its str raises {type(broken).__name__}>"
    return text if text.strip() else type(error).__name__


def reason_of(error: BaseException) -> str:
    """What happened, in one line of Spark's words: the end of a Python traceback, or the last cause that tells it.

    >>> reason_of(RuntimeError("Aborted\\n\\tat a.B.c\\nCaused by: a.B: disk full\\nCaused by: java.io.EOFException"))
    'disk full'
    """
    text = text_of(error)
    if _TRACEBACK in text:
        told = _end_of_traceback(text.rpartition(_TRACEBACK)[2].splitlines())
        if told:
            return cut(told, _LONGEST)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "\t..."))]
    causes = [number for number, line in enumerate(lines) if line.startswith("Caused by: ")]
    for number in [*reversed(causes), *range(len(lines))]:
        line = lines[number].removeprefix("Caused by: ").removeprefix(": ").strip()
        line = line if not _CALLING.match(line) else ""
        said = _CLASS.sub("", line)
        if said.endswith(":") and number + 1 < len(lines) and not lines[number + 1].startswith("Caused by: "):
            said = f"{said} {lines[number + 1].strip()}"
        if said.strip(" :"):
            return cut(said, _LONGEST)
    return cut(" ".join(line.strip() for line in lines), _LONGEST) or type(error).__name__


def _end_of_traceback(lines: list[str]) -> str:
    """The first line after the frames, and those that belong to its message."""
    after = [line for line in lines if line.strip()]
    while after and after[0].startswith(" "):
        after.pop(0)
    told: list[str] = []
    for line in after:
        if line.startswith(("\tat ", "Caused by: ", "Driver stacktrace")):
            break
        told.append(line.strip())
    return " ".join(told)
