"""The log of what has happened: the only thing that makes a batch done, and the states that it wrote count."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from penstock.errors import CheckpointError
from penstock.state.buckets import FOLDER as STATE_FOLDER
from penstock.state.chains import Chain, Place, Segment
from penstock.state.files import Files

_FOLDER = "manifests"
_BATCHES_PER_FULL = 50
_GRACE_SECONDS = 3600.0
_HEAD, _MIDDLE, _TAIL = b'{"digest":"', b'","manifest":', b"}\n"
_BODY_AT = len(_HEAD) + 64 + len(_MIDDLE)


@dataclass(frozen=True)
class Manifest:
    """What one batch has done; `chains` are those of the places that it changed."""

    batch: int
    fingerprint: Mapping[str, Any]
    buckets: int
    offsets: Mapping[str, Any]
    chains: Mapping[Place, Chain]
    outputs: Mapping[str, Any]
    closed: bool


# How a chain has changed: how many of its segments it has kept, and the new ones after them. A manifest of whole chains
# would be larger than the states that most batches change.
_Growth: TypeAlias = tuple[int, Chain]


@dataclass(frozen=True)
class _Entry:
    """A manifest as it is kept, without its chains: how they grew after another batch, and at times all chains whole.

    A bare one is so old that nobody goes back to it.
    """

    manifest: Manifest
    after: int | None = None
    growths: Mapping[Place, _Growth] = field(default_factory=dict)
    full: Mapping[Place, Chain] | None = None
    is_bare: bool = False


class _Replay:
    """Where everything stands after some entries."""

    def __init__(self) -> None:
        self.latest: Manifest | None = None
        self.chains: dict[Place, Chain] = {}
        self._full_batch = 0

    def entry_for(self, manifest: Manifest) -> _Entry:
        """How a manifest is kept that comes after these."""
        growths = {place: _growth(self.chains.get(place, ()), chain) for place, chain in manifest.chains.items()}
        is_full = self.latest is None or manifest.batch - self._full_batch >= _BATCHES_PER_FULL
        return _Entry(
            replace(manifest, chains={}),
            None if self.latest is None else self.latest.batch,
            growths,
            {**self.chains, **manifest.chains} if is_full else None,
        )

    def apply(self, entry: _Entry) -> None:
        if entry.full is not None:
            self.chains = dict(entry.full)
            self._full_batch = entry.manifest.batch
        elif not entry.is_bare:
            if self.latest is None or self.latest.batch != entry.after:
                raise CheckpointError(
                    f"{manifest_name(entry.manifest.batch)} follows batch {entry.after}, whose manifest is missing: "
                    "restore it"
                )
            for place, (kept, new) in entry.growths.items():
                self.chains[place] = (*self.chains.get(place, ())[:kept], *new)
        self.latest = replace(entry.manifest, chains={place: self.chains[place] for place in entry.growths})


class Manifests:
    """The log of what has happened: a batch is done when its manifest is there.

    >>> import tempfile
    >>> log = Manifests(Files(tempfile.mkdtemp()))
    >>> first = Manifest(0, {}, 128, {"lines": 10}, {}, {}, closed=False)
    >>> log.write(first), log.write(first), log.latest().offsets
    (True, False, {'lines': 10})
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._now = _Replay()

    def write(self, manifest: Manifest) -> bool:
        """Declare a batch done, unless it is: then say False and change nothing."""
        latest = self.latest()
        if latest is not None and manifest.batch <= latest.batch:
            return False
        entry = self._now.entry_for(manifest)
        if not self._files.create(manifest_name(manifest.batch), self._encode(entry)):
            return False
        self._now.apply(entry)
        return True

    def read(self, batch: int) -> Manifest | None:
        """The manifest of one batch, if it is done; one that `sweep` has found too old to go back to has no chains."""
        names = [name for name in self._files.names(_FOLDER) if name <= manifest_name(batch)]
        return self._replayed(names).latest if manifest_name(batch) in names[-1:] else None

    def latest(self) -> Manifest | None:
        """The manifest of the last batch that is done."""
        if self._now.latest is None:
            self._now = self._replayed(self._files.names(_FOLDER))
        else:  # the folder may have many names: only ask whether there is a next one
            while (entry := self._entry(manifest_name(self._now.latest.batch + 1))) is not None:
                self._now.apply(entry)
        return self._now.latest

    def chains(self) -> dict[Place, Chain]:
        """Where the states of all places are, as of the latest manifest."""
        self.latest()
        return dict(self._now.chains)

    def outputs(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """What each batch has given to the sinks, in order."""
        for name in self._files.names(_FOLDER):
            if (entry := self._entry(name)) is not None:
                yield entry.manifest.batch, entry.manifest.outputs

    def sweep(self, keep_from: int, now: float) -> list[str]:
        """Delete the state files that nothing from `keep_from` on needs, once they are an hour old, and return them.

        Call it between batches: a file that a running batch has written isn't in any manifest yet.
        """
        names = self._files.names(_FOLDER)
        past = [name for name in names if name <= manifest_name(keep_from)]
        recent = self._from_full(past)
        replay = _Replay()
        for entry in recent:
            replay.apply(entry)
        chains = list(replay.chains.values())
        for entry in self._entries(names[len(past) :]):
            replay.apply(entry)
            chains += (replay.chains[place] for place in entry.growths)
        needed = {segment.file for chain in chains for segment in chain}
        folders = [(STATE_FOLDER, False), (STATE_FOLDER, True), (_FOLDER, True)]
        found = [name for folder, temporary in folders for name in self._files.names(folder, temporary=temporary)]
        swept = [name for name in found if name not in needed and self._is_old(name, now)]
        for name in swept:
            self._files.delete(name)
        self._bare(past[: len(past) - len(recent)])
        return swept

    def _is_old(self, name: str, now: float) -> bool:
        try:
            return now - self._files.modified(name) > _GRACE_SECONDS
        except FileNotFoundError:
            return False

    def _bare(self, names: list[str]) -> None:
        """Take the chains out of manifests that nobody will replay: the log is kept for its outputs, for ever."""
        for entry in map(self._entry, reversed(names)):
            if entry is None or entry.is_bare:
                return
            self._files.write(manifest_name(entry.manifest.batch), self._encode(_Entry(entry.manifest, is_bare=True)))

    def _replayed(self, names: list[str]) -> _Replay:
        replay = _Replay()
        for entry in self._from_full(names):
            replay.apply(entry)
        return replay

    def _from_full(self, names: list[str]) -> list[_Entry]:
        """The entries, in order, from the last full one on."""
        found: list[_Entry] = []
        for name in reversed(names):
            found += self._entries([name])
            if found and (found[-1].full is not None or found[-1].is_bare):
                break
        return found[::-1]

    def _entries(self, names: list[str]) -> list[_Entry]:
        return [entry for name in names if (entry := self._entry(name)) is not None]

    def _entry(self, name: str) -> _Entry | None:
        try:
            data = self._files.read(name)
        except FileNotFoundError:
            return None
        body = data[_BODY_AT : -len(_TAIL)]
        if hmac.compare_digest(data, self._sealed(body)):
            entry = _from_json(json.loads(body))
            if manifest_name(entry.manifest.batch) == name:
                return entry
        raise CheckpointError(
            f"{name} in {self._files.root} is damaged, renamed or was written with another key: "
            "restore it, or start with a new checkpoint"
        )

    def _encode(self, entry: _Entry) -> bytes:
        return self._sealed(json.dumps(_to_json(entry), separators=(",", ":")).encode())

    def _sealed(self, body: bytes) -> bytes:
        return _HEAD + self._files.digest(body).encode() + _MIDDLE + body + _TAIL


def manifest_name(batch: int) -> str:
    return f"{_FOLDER}/{batch:010d}.json"


def _growth(before: Chain, after: Chain) -> _Growth:
    kept = 0
    for old, new in zip(before, after):
        if old != new:
            break
        kept += 1
    return kept, after[kept:]


def _to_json(entry: _Entry) -> dict[str, Any]:
    full = None if entry.full is None else {place: (0, chain) for place, chain in entry.full.items()}
    return {
        **vars(entry.manifest),
        "chains": _growths_to_json(entry.growths),
        "after": entry.after,
        "full": None if full is None else _growths_to_json(full),
        "is_bare": entry.is_bare,
    }


def _from_json(fields: dict[str, Any]) -> _Entry:
    growths = _growths_from_json(fields.pop("chains"))
    after, full, is_bare = fields.pop("after"), fields.pop("full"), fields.pop("is_bare")
    chains = None if full is None else {place: chain for place, (_, chain) in _growths_from_json(full).items()}
    return _Entry(Manifest(**fields, chains={}), after, growths, chains, is_bare)


def _growths_to_json(growths: Mapping[Place, _Growth]) -> list[Any]:
    return [
        [place.operator, place.bucket, kept, [segment.to_json() for segment in new]]
        for place, (kept, new) in growths.items()
    ]


def _growths_from_json(rows: list[Any]) -> dict[Place, _Growth]:
    return {Place(operator, bucket): (kept, tuple(map(Segment.from_json, new))) for operator, bucket, kept, new in rows}
