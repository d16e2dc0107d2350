"""Exceptions on their way from one process to another."""

from __future__ import annotations

import pickle
import traceback

import cloudpickle

from penstock.errors import PenstockError


def portable(error: Exception) -> bytes:
    """An exception as bytes, with its cause and the text of its traceback; or what can be told of it."""
    cause = error.__cause__
    told = cause if cause is not None else error
    text = "".join(traceback.format_exception(type(told), told, told.__traceback__))
    try:
        data: bytes = cloudpickle.dumps((error, cause, text))
        pickle.loads(data)
    except Exception:
        data = pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), None, text))
    return data


def revived(data: bytes) -> Exception:
    """The exception, with its cause, and with the traceback where that was raised as the cause of all."""
    error, cause, text = pickle.loads(data)
    found: Exception = error
    if cause is not None:
        found.__cause__ = cause
        cause.__cause__ = _Elsewhere(text)
    elif not isinstance(found, PenstockError):  # whose words are all there is to say
        found.__cause__ = _Elsewhere(text)
    return found


class _Elsewhere(Exception):
    """The traceback of an exception in another process, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'
