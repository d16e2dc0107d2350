"""A directory of output: the only code that names the files of a batch, and checks that it may still add to them."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.clock import WallClock
from penstock.connectors.files.writers import FileSink, part_number, unwritable
from penstock.engines.durable.claims import Claim, Claims
from penstock.engines.durable.staging import stage_file
from penstock.errors import CheckpointError, SinkError, shown_command
from penstock.state.files import Files, sync_folder
from penstock.state.manifests import Manifest, Output

_TEMPORARY = ".staged"
_GRACE_SECONDS = 3600.0


class Directory:
    """One sink's directory; each batch has a number there, which it claims before its files are named by it."""

    def __init__(self, name: str, sink: FileSink, files: Files, query: str | None) -> None:
        self._name = name
        self._sink = sink
        self._path = sink.directory
        self._files = files
        self._query = query
        self._claims = Claims(self._path)
        self._claim: Claim | None = None
        """The last one of this query."""
        self._above = -1
        """The highest number of a file that was there when the run began."""
        self._old: list[str] = []
        self._columns: Any = None
        """What all files have, where they find it out by themselves."""

    def open(self, latest: Manifest | None, known: Sequence[Any]) -> None:
        """Get ready for a run that goes on after `latest`.

        `known` is what was kept of this directory, and of those that no sink writes to any more.
        """
        kept = next((one for one in known if one["directory"] == self.resolved), None)
        with self._writing():
            mine = self._claims.last(self._query) if self._query is not None and self._path.is_dir() else None
            if mine is not None and (kept is not None or mine.batch >= 0):
                # A directory that was moved is not known, but what it holds is.
                self._check(mine, [Claim(*one["claim"]) for one in known], latest)
            elif kept is not None:
                raise SinkError(
                    f"{self._sink.name} sink: {str(self._path)!r} no longer knows what this checkpoint has written "
                    "there: it was deleted, moved or overwritten; put it back, write to another directory, or say "
                    f"{self._rewinding()} to go on with what is there"
                )
            if kept is not None:
                self._old = list(kept["old"])
                self._columns = self._columns_kept(kept)
            elif mine is None or mine.batch < 0:
                if mine is not None:  # a run that found nothing has only said which columns there would be
                    (self._path / f"part-{mine.number:08d}-00000{self._sink.suffix}").unlink(missing_ok=True)
                self._begin(is_ours=mine is not None)
            self._above = max(map(part_number, self._path.glob("part-*")), default=-1)
            self._sweep()
            self._claim = mine
            if mine is None and self._query is not None:
                self._claim = self._next_claim(-1, "")

    def kept(self) -> Any:
        if self._claim is None:
            return None
        kept: dict[str, Any] = {"directory": self.resolved, "claim": self._claim.to_json(), "old": self._old}
        if self._columns is not None and self._sink.agreement is not None:
            agreement = self._sink.agreement
            kept["columns"] = {agreement.kind: agreement.kept(self._columns)}
        return kept

    def _columns_kept(self, kept: Any) -> Any:
        agreement = self._sink.agreement
        if agreement is None or agreement.kind not in kept.get("columns", {}):
            return None  # they are asked of the files
        return agreement.taken_up(kept["columns"][agreement.kind])

    def agreed(self, batch: int, staged: Sequence[Output]) -> Sequence[Output]:
        """Staged files, all with the same columns, where files find out by themselves what theirs are."""
        agreement = self._sink.agreement
        if agreement is None or not staged:
            return staged
        if self._columns is None:
            self._columns = agreement.of_output(self._out())
        data = [self._files.fetch(output.blob, f"output of sink {self._name!r}") for output in staged]
        found = [agreement.of(one) for one in data]
        where = f"the files of {self._name!r} in {str(self._path)!r}"
        together = self._columns = agreement.together(where, self._columns, found)
        return [
            output
            if agreement.is_ready(columns, together)
            else stage_file(self._files, batch, agreement.fitted(one, together), output.rows)
            for output, one, columns in zip(staged, data, found, strict=True)
        ]

    def _out(self) -> list[Path]:
        """The files of its format that are out and stay, by any query."""
        paths = sorted(self._path.glob(f"part-*{self._sink.suffix}"))
        return [path for path in paths if path.name not in self._old]

    def publish(self, manifest: Manifest, staged: Sequence[Output]) -> None:
        """Let the files of a batch be seen; once more changes nothing."""
        if not staged:
            return
        with self._writing():
            number = self._number(manifest)
            for number_in_batch, output in enumerate(staged):
                self._put(output, self._path / f"part-{number:08d}-{number_in_batch:05d}{self._sink.suffix}")
            sync_folder(str(self._path))
            self._remove_old()

    def close(self) -> None:
        """The run has ended well: what is overwritten is gone, also where nothing has come in its place."""
        with self._writing():
            empty = self._sink.encoder().empty()
            if empty and all(path.name in self._old for path in self._path.glob("part-*")):
                number = self._above + 1 if self._claim is None else self._claim.number
                temporary = self._path / f".{uuid.uuid4().hex}{_TEMPORARY}"
                temporary.write_bytes(empty)
                os.replace(temporary, self._path / f"part-{number:08d}-00000{self._sink.suffix}")
            self._remove_old()

    @property
    def resolved(self) -> str:
        """What a checkpoint knows it by."""
        return str(self._path.resolve())

    def _begin(self, is_ours: bool) -> None:
        """The first time: what is there already?"""
        writer = self._sink.open()
        if self._sink.mode == "error" and not is_ours and self._claims.all():
            raise SinkError(
                f"{self._sink.name} sink: {str(self._path)!r} belongs to another query, which may still write to it; "
                "write elsewhere, or say mode='append' or mode='overwrite'"
            )
        self._old = [path.name for path in writer.old]

    def _check(self, mine: Claim, known: Sequence[Claim], latest: Manifest | None) -> None:
        """What was claimed last is what this checkpoint remembers, or what its last batch was about to claim."""
        batch = -1 if latest is None else latest.batch
        newest = None if latest is None else Claim(0, latest.query, latest.batch, latest.lineage)
        if mine.is_for(newest) or any(mine.is_for(one) and one.number <= mine.number for one in known):
            return
        if mine.batch < 0 and all(one.batch < 0 for one in known):
            return
        where = f"{self._sink.name} sink: the output in {str(self._path)!r}"
        ways = (
            f"go on with the newest copy of the checkpoint, or say {self._rewinding()} to roll the output back to this "
            "one"
        )
        last = max((one.batch for one in known), default=-1)
        if mine.batch < last:
            raise CheckpointError(
                f"{where} is behind this checkpoint: {self._claims.path(mine.number + 1)}, with the claim of batch "
                f"{last}, is missing, because the directory was put back to an older state or lost a file; restore "
                "it, or write to a new directory with a new checkpoint"
            )
        if mine.batch > batch:
            raise CheckpointError(
                f"{where} is ahead of this checkpoint: batch {mine.batch} is out, and the checkpoint ends with batch "
                f"{batch}, so it is an older copy. To write nothing twice, {ways}"
            )
        raise CheckpointError(
            f"{where} is that of another copy of this checkpoint, which has gone on by itself: its batch {mine.batch} "
            f"is not ours. To write nothing twice, {ways}"
        )

    def _rewinding(self) -> str:
        return shown_command("penstock", "checkpoint", "rewind", self._files.root, "--directory", str(self._path))

    def _number(self, manifest: Manifest) -> int:
        """The number of a batch: claimed, or, where no later run can go on, the next."""
        if self._query is None:
            return self._above + 1 + manifest.batch
        wanted = Claim(0, self._query, manifest.batch, manifest.lineage)
        if not wanted.is_for(self._claim):
            self._claim = self._next_claim(manifest.batch, manifest.lineage)
        assert self._claim is not None
        return self._claim.number

    def _next_claim(self, batch: int, lineage: str) -> Claim:
        """From one look at the log: between two, another copy of this checkpoint could go on."""
        assert self._query is not None
        while True:
            seen = self._claims.all()
            mine = self._claims.last(self._query, seen)
            if mine != self._claim:
                raise CheckpointError(
                    f"{self._sink.name} sink: another copy of this checkpoint writes to {str(self._path)!r} at the "
                    "same time; stop one of them, and give it a checkpoint made with 'penstock checkpoint copy'"
                )
            if (made := self._claims.make(self._query, batch, lineage, seen, self._above)) is not None:
                return made

    def _put(self, output: Output, path: Path) -> None:
        """A link where that can be; a file that is there already must be the same."""
        self._files.check(output.blob, f"output of sink {self._name!r}")
        local = self._files.local_path(output.file)
        temporary = path.parent / f".{uuid.uuid4().hex}{_TEMPORARY}"
        try:
            if local is None:
                temporary.write_bytes(self._files.fetch(output.blob, f"output of sink {self._name!r}"))
                self._name_it(temporary, path)
                return
            try:
                self._name_it(Path(local), path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shutil.copyfile(local, temporary)  # another disk
                self._name_it(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _name_it(self, file: Path, path: Path) -> None:
        try:
            os.link(file, path)
        except FileExistsError:
            if not _same(file, path):
                raise SinkError(
                    f"{self._sink.name} sink: {str(path)!r} was written by another program; this directory has to be "
                    "left to the flows that write to it: move that file away"
                ) from None

    def _sweep(self) -> None:
        """Delete what was left half-written by runs that died; what is younger may be another query's at work."""
        before = WallClock().now() - _GRACE_SECONDS
        for path in self._path.glob(f".*{_TEMPORARY}"):
            with suppress(OSError):
                if path.stat().st_mtime < before:
                    path.unlink()
        self._claims.sweep(before)

    def _remove_old(self) -> None:
        """What is overwritten goes when there is something in its place."""
        if self._old and self._query is not None:
            self._claims.forget(self._query)
        for name in self._old:
            (self._path / name).unlink(missing_ok=True)
        self._old = []

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unwritable(self._sink.name, self._path, error.strerror or error) from error


def _same(one: Path, other: Path) -> bool:
    if os.path.samefile(one, other):
        return True
    return one.stat().st_size == other.stat().st_size and _hash(one) == _hash(other)


def _hash(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
