"""Contestants are compared only if they have the same result, at the size that is measured: here is who sees to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple


class Result(NamedTuple):
    """How many values came out, and which, in which order."""

    count: int
    digest: str


def result_of(values: Iterable[Any], in_any_order: bool = False) -> Result:
    """To be asked for when the time is taken.

    >>> result_of([1, 2]) == result_of([2, 1]), result_of([1, 2], True) == result_of([2, 1], True)
    (False, True)
    """
    listed = sorted(values) if in_any_order else list(values)
    digest = hashlib.blake2b(digest_size=8)
    for start in range(0, len(listed), 10_000):
        digest.update(repr(listed[start : start + 10_000]).encode())
    return Result(len(listed), digest.hexdigest())


class Results:
    """What contestants have come to; the first one says what is right."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Result]] = {}

    def note(self, contest: str, contestant: str, result: Result) -> None:
        """`RuntimeError` where it is not what others have come to."""
        found = self._found.setdefault(contest, {})
        for other, before in found.items():
            if before != result:
                raise RuntimeError(f"{contest}: {contestant} has {result}, and {other} has {before}")
        found[contestant] = result
