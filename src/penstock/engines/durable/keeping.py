"""What users do to a checkpoint between two runs: look at it, verify it, copy it, let it fit a changed flow, rewind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.connectors.files.writers import part_number
from penstock.engines.durable.admitted import admitted_name, refuse_unprocessed
from penstock.engines.durable.checkpoint import ABOUT, Root
from penstock.engines.durable.claims import Claim, Claims
from penstock.engines.durable.commits import check_published, read_published, write_published
from penstock.engines.durable.fingerprint import NEW
from penstock.errors import CheckpointError
from penstock.flow.checks import checked_name
from penstock.state.chains import BucketId, SegmentChain
from penstock.state.files import Blob
from penstock.state.manifests import FOLDER as MANIFESTS
from penstock.state.manifests import Manifest, Outputs, manifest_name


@dataclass(frozen=True)
class OperatorSummary:
    """What a checkpoint has of one source or operator."""

    name: str
    what: str
    keys: int
    size_bytes: int


@dataclass(frozen=True)
class Summary:
    """What is in a checkpoint."""

    flow: str
    query: str
    penstock: str
    created: float
    engine: str | None
    batch: int | None
    written: float | None
    closed: bool
    is_out: bool
    offsets: Mapping[str, Any]
    operators: Sequence[OperatorSummary]
    sinks: Mapping[str, Any]
    files: int
    size_bytes: int


@dataclass(frozen=True)
class Finding:
    """A file, and what is wrong with it, if anything."""

    file: str
    problem: str = ""


def show(path: str) -> Summary:
    """What is in a checkpoint; it may be in use."""
    root = _existing(path)
    about = _about(root)
    latest, chains = root.latest, root.manifests.chains()
    operators = [
        OperatorSummary(
            name, what, *_size_of([chain for bucket_id, chain in chains.items() if bucket_id.operator == name])
        )
        for name, what in (latest.operators if latest is not None else {}).items()
    ]
    sizes = [os.path.getsize(file) for file in _files_in(root)]
    return Summary(
        about["flow"],
        about["query"],
        about["penstock"],
        about["created"],
        None if latest is None else latest.engine,
        None if latest is None else latest.batch,
        None if latest is None else root.files.modified(manifest_name(latest.batch)),
        latest is not None and latest.closed,
        latest is None or _is_out(root, latest),
        {} if latest is None else latest.offsets,
        operators,
        {} if latest is None else latest.sinks,
        len(sizes),
        sum(sizes),
    )


def verify(path: str) -> list[Finding]:
    """Read every file that a run could need, and say which are not sound."""
    root = Root(path, is_held=False)
    looks = _Looks()
    if not looks.at(ABOUT, lambda: _about(root), is_needed=True):
        return looks.findings
    sound = [looks.at(name, partial(root.files.unseal, name)) for name in root.files.names(MANIFESTS)]
    if not all(sound) or not looks.at(f"the log in {MANIFESTS}", lambda: root.latest):
        return looks.findings
    latest = root.latest
    looks.at("published", lambda: check_published(root.files, latest, read_published(root.files)))
    looks.at(admitted_name(root.next_batch), lambda: _admitted(root))
    for blob, what in _needed(root):
        looks.at(blob.file, partial(root.files.fetch, blob, what))
    for sink, kept in ({} if latest is None else latest.sinks).items():
        looks.at(f"the claims of sink {sink!r}", partial(_read_claims, kept))
    return looks.findings


class _Looks:
    """What was looked at, and what was found."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def at(self, file: str, look: Callable[[], object], is_needed: bool = False) -> bool:
        """Whether all is well: it is sound, or need not be there."""
        try:
            look()
        except FileNotFoundError:
            return True
        except CheckpointError as error:
            if is_needed and self.findings == [] and "there is no checkpoint" in str(error):
                raise
            self.findings.append(Finding(file, str(error)))
            return False
        self.findings.append(Finding(file))
        return True


def copy(path: str, to: str) -> None:
    """Make a copy that goes on by itself, with output of its own: it is another query."""
    root = _existing(path)
    root.check_owner()  # or what another user has put there would be this user's in the copy
    _refuse_damage(path)
    about, latest = _about(root), _finished(root)
    if os.path.isdir(to) and os.listdir(to):
        raise CheckpointError(f"{to!r} is not empty: give a new directory for the copy")
    target = Root(to)
    try:
        for name in sorted({blob.file for blob, _ in _needed(root)}):
            root.files.copy(name, target.files)
        made = target.create(about["flow"])
        manifest = replace(latest, query=made["query"], chains=root.manifests.chains(), outputs={}, sinks={})
        target.manifests.write(manifest, is_whole=True)
        assert target.latest is not None
        write_published(target.files, target.latest, {})
    finally:
        target.leave()


def rename(path: str, names: Mapping[str, str], drop: Sequence[str] = (), add: Sequence[str] = ()) -> None:
    """Let a changed flow go on: some operators have other names, some are forgotten, and some begin empty."""
    root = _held(path)
    try:
        latest = _finished(root)
        known = {*latest.operators, *latest.sinks, *latest.collected}
        for name in (*names, *drop):
            if name not in known:
                raise CheckpointError(
                    f"checkpoint {path!r} knows nothing of {name!r}; it knows {', '.join(sorted(known)) or 'nothing'}"
                )
        new = [*names.values(), *add]
        wrong = {name for name in names if name in drop} | {name for name in new if new.count(name) > 1}
        if wrong:
            raise CheckpointError(f"{', '.join(map(repr, sorted(wrong)))}: each name can be told one thing only")
        for name in new:
            checked_name("operator", name)
        for name in add:
            if name in {*latest.sinks, *latest.collected} - {*drop}:
                raise CheckpointError(f"{name!r} is a sink: sinks may come and go without a word")
        gone = {*names, *drop}
        for name in (*names.values(), *add):
            if name in known - gone:
                raise CheckpointError(f"checkpoint {path!r} has a {name!r} already: drop it, or give another name")

        def kept(found: Mapping[str, Any]) -> dict[str, Any]:
            return {names.get(name, name): one for name, one in found.items() if name not in drop}

        chains = {
            BucketId(names.get(bucket_id.operator, bucket_id.operator), bucket_id.bucket): chain
            for bucket_id, chain in root.manifests.chains().items()
            if bucket_id.operator not in drop
        }
        published = read_published(root.files)
        _go_on(
            root,
            replace(
                latest,
                operators={**kept(latest.operators), **dict.fromkeys(add, NEW)},
                offsets=kept(latest.offsets),
                chains=chains,
                collected=kept(latest.collected),
                sinks=kept(latest.sinks if published is None else published.sinks),
            ),
        )
    finally:
        root.leave()


def rewind(path: str, directories: Sequence[str] = ()) -> dict[str, int]:
    """Roll output back to a checkpoint, also in directories that it does not know: how many files went, by sink."""
    root = _held(path)
    try:
        latest, published = root.latest, read_published(root.files)
        query = _about(root)["query"]
        if latest is None:
            raise CheckpointError(f"checkpoint {path!r} has done nothing yet: delete its output, and run the flow")
        is_out = published is not None and published.batch == latest.batch
        sinks = published.sinks if published is not None and is_out else latest.sinks
        removed = {name: _rewind(Path(kept["directory"]), Claim(*kept["claim"]), query) for name, kept in sinks.items()}
        known = {kept["directory"] for kept in sinks.values()}
        remembered = [Claim(*kept["claim"]) for kept in sinks.values()]
        for directory in directories:
            if (resolved := Path(directory).resolve()).is_dir() and str(resolved) not in known:
                removed[directory] = _rewind(resolved, _claim_to_go_back_to(resolved, query, remembered), query)
        return removed
    finally:
        root.leave()


def _claim_to_go_back_to(directory: Path, query: str, remembered: Sequence[Claim]) -> Claim:
    """What the checkpoint remembers, if the directory was moved; else where the query stood before it wrote here."""
    claims = Claims(directory)
    found = [claims.read(number) for number in claims.all()]
    mine = [claim for claim in found if claim is not None and claim.query == query]
    if not mine:
        raise CheckpointError(f"{str(directory)!r} has no output of this checkpoint: there is nothing to roll back")
    for claim in reversed(mine):
        if claim.batch >= 0 and any(claim.is_for(one) for one in remembered):
            return claim
    if mine[0].batch >= 0:  # the first one has been forgotten
        raise _too_old(directory)
    return mine[0]


def _too_old(directory: Path) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint is too old: {str(directory)!r} no longer knows who wrote what since; restore the directory"
    )


def _rewind(directory: Path, target: Claim, query: str) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    claims = Claims(directory)
    owners = {number: claim.query for number in claims.all() if (claim := claims.read(number)) is not None}
    mine = claims.last(query)
    if mine is not None and mine.batch < target.batch:
        raise CheckpointError(
            f"the output in {str(directory)!r} ends with batch {mine.batch}, and the checkpoint with batch "
            f"{target.batch}: what lies between is missing, and no command can make it again; restore the directory"
        )
    if owners and target.number < min(owners):
        raise _too_old(directory)
    removed = 0
    for part in sorted(directory.glob("part-*")):
        number = part_number(part)
        if number > target.number and owners.get(number) == query:  # files without a claim are another query's
            part.unlink()
            removed += 1
    above = max([target.number, *map(part_number, directory.glob("part-*"))])
    if claims.make(query, target.batch, target.lineage, seen=claims.all(), above=above) is None:
        raise CheckpointError(f"{str(directory)!r} is being written to: stop the run that does it, and try again")
    return removed


def _existing(path: str) -> Root:
    root = Root(path, is_held=False)
    _about(root)
    return root


def _held(path: str) -> Root:
    _existing(path)
    return Root(path)


def _about(root: Root) -> dict[str, Any]:
    about = root.about()
    if about is None:
        raise CheckpointError(f"there is no checkpoint in {root.root!r}")
    return about


def _finished(root: Root) -> Manifest:
    """The last batch, if there is nothing left to do but to go on."""
    latest, published = root.latest, read_published(root.files)
    check_published(root.files, latest, published)
    refuse_unprocessed(root)
    if latest is None:
        raise CheckpointError(f"checkpoint {root.root!r} has done nothing yet: start with a new one")
    if published is None or published.batch < latest.batch:
        raise CheckpointError(
            f"checkpoint {root.root!r}: the output of batch {latest.batch} is not out yet, because a run died; run the "
            "unchanged flow once more before you do this"
        )
    return latest


def _refuse_damage(path: str) -> None:
    for finding in verify(path):
        if finding.problem:
            raise CheckpointError(finding.problem)


def _go_on(root: Root, manifest: Manifest) -> None:
    """One more manifest, in which nothing has happened but what was asked for."""
    root.manifests.write(replace(manifest, batch=manifest.batch + 1, outputs={}), is_whole=True)
    assert root.latest is not None
    write_published(root.files, root.latest, manifest.sinks)


def _needed(root: Root) -> list[tuple[Blob, str]]:
    """Every blob that a run would read, and what it is."""
    latest = root.latest
    found = [
        (segment.blob, f"states of operator {bucket_id.operator!r}")
        for bucket_id, chain in root.manifests.chains().items()
        for segment in chain
    ]
    if latest is not None:
        groups: list[Outputs] = [latest.collected] if _is_out(root, latest) else [latest.collected, latest.outputs]
        found += [
            (output.blob, f"output of sink {sink!r}")
            for outputs in groups
            for sink, of_sink in outputs.items()
            for output in of_sink
        ]
    with suppress(FileNotFoundError, CheckpointError):
        spools = [part["spool"] for task in _admitted(root)["tasks"] for part in task if part["spool"] is not None]
        found += [(Blob(*spool), "what a source has read") for spool in spools]
    return found


def _is_out(root: Root, latest: Manifest) -> bool:
    try:
        published = read_published(root.files)
    except CheckpointError:
        return False
    return published is not None and published.batch == latest.batch


def _admitted(root: Root) -> dict[str, Any]:
    admitted: dict[str, Any] = json.loads(root.files.unseal(admitted_name(root.next_batch)).body)
    return admitted


def _read_claims(kept: Mapping[str, Any]) -> None:
    claims = Claims(Path(kept["directory"]))
    for number in claims.all():
        claims.read(number)


def _size_of(chains: Sequence[SegmentChain]) -> tuple[int, int]:
    return sum(chain[-1].keys for chain in chains if chain), sum(one.length for chain in chains for one in chain)


def _files_in(root: Root) -> list[str]:
    path = root.files.local_path("lock")
    if path is None:
        return []
    return [os.path.join(folder, name) for folder, _, names in os.walk(os.path.dirname(path)) for name in names]
