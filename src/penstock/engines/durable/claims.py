"""Whose turn it is to write to a directory: the only code that numbers what several runs put there.

A directory has a log of claims, one file each, put there only if that number is free. A claim says which batch
of which query its number is for, and that batch's lineage. So a run sees at once that its output is ahead of its
checkpoint (an older copy), or that another copy of the checkpoint has gone on; and two queries that append never use
one number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.connectors.files.writers import BOOKKEEPING
from penstock.state.files import Files

_LOG = "claims"
_KEPT = 1000
_DIGITS = 10


@dataclass(frozen=True)
class Claim:
    """A number in a directory, and what it is for; batch -1 is for a query that has not written yet."""

    number: int
    query: str
    batch: int
    lineage: str

    def is_for(self, other: Claim | None) -> bool:
        """Whether both are for the same batch, whatever their numbers are."""
        return other is not None and (self.query, self.batch, self.lineage) == (
            other.query,
            other.batch,
            other.lineage,
        )

    def to_json(self) -> list[Any]:
        return [self.number, self.query, self.batch, self.lineage]

    @classmethod
    def from_json(cls, fields: Any) -> Claim:
        """`ValueError` or `TypeError` for what is no claim."""
        claim = cls(*fields)
        if tuple(map(type, claim.to_json())) != (int, str, int, str):
            raise TypeError("a claim has two numbers and two texts")
        return claim


class Claims:
    """The log of one directory.

    >>> import tempfile
    >>> claims = Claims(Path(tempfile.mkdtemp()))
    >>> first = claims.make("mine", 0, "a0", seen=claims.all())
    >>> claims.make("yours", 0, "b0", seen=claims.all()).number, claims.last("mine") == first
    (1, True)
    """

    def __init__(self, directory: Path) -> None:
        # Without a key: these are plain words about files that all may read, and other queries have other keys.
        self._files = Files(str(directory / BOOKKEEPING), key=b"")

    def all(self) -> list[int]:
        """The numbers that are taken, in order."""
        names = [name.rpartition("/")[2] for name in self._files.names(_LOG)]
        return [int(name) for name in names if name.isascii() and name.isdigit()]

    def read(self, number: int) -> Claim | None:
        """The claim of a number; `None` if there is none."""
        name = _name(number)
        try:
            body = self._files.unseal(name).body
        except FileNotFoundError:
            return None
        try:
            claim = Claim.from_json(json.loads(body))
        except (ValueError, TypeError, RecursionError):  # its seal has no key: others could have made it
            raise self._files.damaged(name) from None
        if claim.number != number:
            raise self._files.damaged(name)
        return claim

    def last(self, query: str, seen: Sequence[int] | None = None) -> Claim | None:
        """The last claim of a query among these numbers, or all."""
        for number in reversed(self.all() if seen is None else seen):
            claim = self.read(number)
            if claim is not None and claim.query == query:
                return claim
        return None

    def make(self, query: str, batch: int, lineage: str, seen: Sequence[int], above: int = -1) -> Claim | None:
        """Claim the next number after those that were seen, and above another; `None` if it was taken since."""
        number = 1 + max(above, seen[-1] if seen else -1)
        claim = Claim(number, query, batch, lineage)
        if not self._files.create(_name(number), json.dumps(claim.to_json()).encode()):
            return None
        now = self.all()
        if now[-1] - number > _KEPT // 2:  # it was taken and forgotten while we slept
            self._files.delete(_name(number))
            return None
        for old in now[:-_KEPT]:
            if (other := self.read(old)) is not None and other.query == query:
                self._files.delete(_name(old))
        return claim

    def path(self, number: int) -> str:
        """Where a claim is or should be, for people."""
        return self._files.path(_name(number))

    def sweep(self, before: float) -> None:
        """Delete claims that were left half-written before that time."""
        for name in self._files.names(_LOG, temporary=True):
            with suppress(FileNotFoundError):
                if self._files.modified(name) < before:
                    self._files.delete(name)

    def forget(self, query: str) -> None:
        """Delete the claims of other queries: what they wrote is overwritten."""
        for number in self.all():
            claim = self.read(number)
            if claim is not None and claim.query != query:
                self._files.delete(_name(number))


def _name(number: int) -> str:
    return f"{_LOG}/{number:0{_DIGITS}d}"
