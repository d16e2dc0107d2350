"""The log of what has happened: the only thing that makes a batch done, and the states that it wrote count."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from penstock.errors import CheckpointError
from penstock.state.chains import BucketId, Segment, SegmentChain
from penstock.state.files import Blob, Files, Sealed

FOLDER = "manifests"
_BATCHES_PER_FULL = 50


@dataclass(frozen=True)
class Output:
    """A file with some output of a sink, and how many tuples are in it."""

    file: str
    digest: str
    rows: int

    @property
    def blob(self) -> Blob:
        return Blob(self.file, self.digest)

    def to_json(self) -> list[Any]:
        return [self.file, self.digest, self.rows]


Outputs: TypeAlias = Mapping[str, Sequence[Output]]
"""By sink, in order."""


@dataclass(frozen=True)
class Manifest:
    """What one batch has done; `chains` are those of the buckets that it changed."""

    batch: int
    engine: str
    """What ran the batch: buckets, and what was admitted after it, are that engine's own."""
    query: str
    operators: Mapping[str, str]
    """The sources and the operators with state: what each is."""
    buckets: int
    offsets: Mapping[str, Any]
    """By source, how far it was read."""
    chains: Mapping[BucketId, SegmentChain]
    outputs: Outputs
    """What the batch has given to the sinks."""
    collected: Outputs = field(default_factory=dict)
    """What it and all batches before have given to the sinks that are filled again at every start."""
    sinks: Mapping[str, Any] = field(default_factory=dict)
    """What each sink must know to go on."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """By sink, what its outputs are made for."""
    closed: bool = False
    lineage: str = ""
    """The seal of its file, which covers the seal of the one before: two copies of a checkpoint that went on
    differently have no lineage in common from there on."""


# How a chain has changed: how many of its segments it has kept, and the new ones after them. A manifest of whole chains
# would be larger than the states that most batches change.
_Growth: TypeAlias = tuple[int, SegmentChain]


@dataclass(frozen=True)
class _LogRecord:
    """A manifest as it is kept, without its chains: how they grew after another batch, and at times all of them."""

    manifest: Manifest
    after: int | None = None
    before: str = ""
    """The lineage of the batch that it comes after."""
    growths: Mapping[BucketId, _Growth] = field(default_factory=dict)
    full: Mapping[BucketId, SegmentChain] | None = None


class _Replay:
    """Where everything stands after some records."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.latest: Manifest | None = None
        self.chains: dict[BucketId, SegmentChain] = {}
        self._full_batch = 0

    def record_for(self, manifest: Manifest, is_whole: bool) -> _LogRecord:
        """How a manifest is kept that comes after these; with `is_whole`, its chains are all that there are."""
        chains = {} if is_whole else self.chains
        growths = {bucket_id: _growth(chains.get(bucket_id, ()), chain) for bucket_id, chain in manifest.chains.items()}
        is_full = is_whole or self.latest is None or manifest.batch - self._full_batch >= _BATCHES_PER_FULL
        return _LogRecord(
            replace(manifest, chains={}),
            None if self.latest is None else self.latest.batch,
            "" if self.latest is None else self.latest.lineage,
            growths,
            {**chains, **manifest.chains} if is_full else None,
        )

    def _path_of(self, record: _LogRecord) -> str:
        return self._files.path(manifest_name(record.manifest.batch))

    def apply(self, record: _LogRecord) -> None:
        if self.latest is not None and (record.after, record.before) != (self.latest.batch, self.latest.lineage):
            raise CheckpointError(
                f"{self._path_of(record)} follows batch {record.after}, and what is there before it is "
                f"batch {self.latest.batch} of this or another copy of the checkpoint: a manifest is missing or was "
                "swapped; restore it, or start with a new checkpoint"
            )
        if record.full is not None:
            self.chains = dict(record.full)
            self._full_batch = record.manifest.batch
        elif self.latest is None:
            raise CheckpointError(
                f"{self._path_of(record)} follows batch {record.after}, whose manifest is missing: "
                "restore it, or start with a new checkpoint"
            )
        else:
            for bucket_id, (kept, new) in record.growths.items():
                self.chains[bucket_id] = (*self.chains.get(bucket_id, ())[:kept], *new)
        self.latest = replace(
            record.manifest, chains={bucket_id: self.chains[bucket_id] for bucket_id in record.growths}
        )


class Manifests:
    """The log of what has happened: a batch is done when its manifest is there.

    >>> import tempfile
    >>> log = Manifests(Files(tempfile.mkdtemp()))
    >>> first = Manifest(0, "local", "7f", {}, 1, {"lines": 10}, {}, {})
    >>> log.write(first), log.write(first), log.latest().offsets
    (True, False, {'lines': 10})
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._now = _Replay(self._files)

    def write(self, manifest: Manifest, is_whole: bool = False) -> bool:
        """Declare a batch done, unless it is: then say False and change nothing.

        With `is_whole`, buckets that it has no chains for are gone.
        """
        latest = self.latest()
        if latest is not None and manifest.batch <= latest.batch:
            return False
        name = manifest_name(manifest.batch)
        record = self._now.record_for(manifest, is_whole)
        if not self._files.create(name, json.dumps(_to_json(record), separators=(",", ":")).encode()):
            return False
        sealed = self._record(name)
        assert sealed is not None
        self._now.apply(sealed)
        return True

    def latest(self) -> Manifest | None:
        """The manifest of the last batch that is done."""
        if self._now.latest is None:
            self._now = self._replayed(self._files.names(FOLDER))
        else:  # the folder may have many names: only ask whether there is a next one
            while (record := self._record(manifest_name(self._now.latest.batch + 1))) is not None:
                self._now.apply(record)
            if not self._is_there(self._now.latest.batch):  # others have gone on so far that they have forgotten it
                self._now = self._replayed(self._files.names(FOLDER))
        return self._now.latest

    def _is_there(self, batch: int) -> bool:
        try:
            self._files.modified(manifest_name(batch))
        except FileNotFoundError:
            return False
        return True

    def chains(self) -> dict[BucketId, SegmentChain]:
        """Where the states of all buckets are, as of the latest manifest."""
        self.latest()
        return dict(self._now.chains)

    def forget(self, keep_from: int) -> set[str]:
        """Delete the manifests that nothing from that batch on needs; return the files that the others need."""
        names = self._files.names(FOLDER)
        past = [name for name in names if name <= manifest_name(keep_from)]
        recent = self._from_full(past)
        records = [*recent, *self._records(names[len(past) :])]
        replay, needed = _Replay(self._files), set[str]()
        for number, record in enumerate(records):
            replay.apply(record)
            if number >= len(recent) - 1:  # what lies between the full one and this is only the way to its chains
                manifest = record.manifest
                outputs = [*manifest.outputs.values(), *manifest.collected.values()]
                needed.update(output.file for of_sink in outputs for output in of_sink)
                needed.update(segment.file for chain in replay.chains.values() for segment in chain)
        for name in past[: len(past) - len(recent)]:
            self._files.delete(name)
        return needed

    def _replayed(self, names: Sequence[str]) -> _Replay:
        replay = _Replay(self._files)
        for record in self._from_full(names):
            replay.apply(record)
        return replay

    def _from_full(self, names: Sequence[str]) -> list[_LogRecord]:
        """The records, in order, from the last full one on."""
        found: list[_LogRecord] = []
        for name in reversed(names):
            found += self._records([name])
            if found and found[-1].full is not None:
                break
        return found[::-1]

    def _records(self, names: Sequence[str]) -> list[_LogRecord]:
        return [record for name in names if (record := self._record(name)) is not None]

    def _record(self, name: str) -> _LogRecord | None:
        try:
            sealed = self._files.unseal(name)
        except FileNotFoundError:
            return None
        return _from_json(sealed)


def manifest_name(batch: int) -> str:
    return f"{FOLDER}/{batch:010d}"


def _growth(before: SegmentChain, after: SegmentChain) -> _Growth:
    kept = 0
    for old, new in zip(before, after):
        if old != new:
            break
        kept += 1
    return kept, after[kept:]


def _to_json(record: _LogRecord) -> dict[str, Any]:
    full = None if record.full is None else {bucket_id: (0, chain) for bucket_id, chain in record.full.items()}
    fields = {
        **vars(record.manifest),
        "outputs": _outputs_to_json(record.manifest.outputs),
        "collected": _outputs_to_json(record.manifest.collected),
        "chains": _growths_to_json(record.growths),
        "after": record.after,
        "before": record.before,
        "full": None if full is None else _growths_to_json(full),
    }
    del fields["lineage"]  # the seal of what is written here
    return fields


def _from_json(sealed: Sealed) -> _LogRecord:
    fields = json.loads(sealed.body)
    growths = _growths_from_json(fields.pop("chains"))
    after, before, full = fields.pop("after"), fields.pop("before"), fields.pop("full")
    outputs, collected = (_outputs_from_json(fields.pop(name)) for name in ("outputs", "collected"))
    chains = None if full is None else {bucket_id: chain for bucket_id, (_, chain) in _growths_from_json(full).items()}
    manifest = Manifest(**fields, chains={}, outputs=outputs, collected=collected, lineage=sealed.seal)
    return _LogRecord(manifest, after, before, growths, chains)


def _outputs_to_json(outputs: Outputs) -> dict[str, list[list[Any]]]:
    return {sink: [output.to_json() for output in found] for sink, found in outputs.items()}


def _outputs_from_json(fields: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, list[Output]]:
    return {sink: [Output(*output) for output in found] for sink, found in fields.items()}


def _growths_to_json(growths: Mapping[BucketId, _Growth]) -> list[Any]:
    return [
        [bucket_id.operator, bucket_id.bucket, kept, [segment.to_json() for segment in new]]
        for bucket_id, (kept, new) in growths.items()
    ]


def _growths_from_json(rows: Sequence[Any]) -> dict[BucketId, _Growth]:
    return {
        BucketId(operator, bucket): (kept, tuple(map(Segment.from_json, new))) for operator, bucket, kept, new in rows
    }
