"""Half-finished checkpoints, what kinds of files they have, and every way to damage one.

Nothing here knows the name of a file: what a checkpoint has is found by walking it.
"""

from __future__ import annotations

import os
import pickle
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.trials import RIGHT, Ended, Place, Verdict, at_steps, judge, run, run_here

_SHORTEST_TELLING_NAME = 4


def kind_of(work: Path, path: str | Path) -> str:
    """The folder and the shape of a name: numbers and hashes differ from file to file of one kind, and so do sinks."""
    relative = os.path.relpath(path, work)
    shape = re.sub(r"[0-9a-f]{16,}", "<hash>", relative)
    return re.sub(r"^out/[^/]+", "out/*", re.sub(r"\d+", "<n>", shape))


def files_by_kind(work: Path) -> dict[str, list[str]]:
    """All files that somebody will read back, sorted by name; the rows that were published are the user's."""
    found: dict[str, list[str]] = {}
    for path in sorted(work.rglob("*")):
        kind = kind_of(work, path)
        if path.is_file() and not kind.startswith("out/*/part-"):
            found.setdefault(kind, []).append(str(path.relative_to(work)))
    return found


@dataclass(frozen=True)
class Snapshot:
    """Checkpoint and output as a process leaves them that dies at a step: what is copied there holds no lock."""

    step: str
    number: int
    folder: Path

    def restore(self, place: Place) -> None:
        """At the same path, since a checkpoint knows the paths of its input and output."""
        shutil.rmtree(place.work, ignore_errors=True)
        shutil.copytree(self.folder, place.work)

    def __str__(self) -> str:
        return f"{self.step} {self.number}"


def snapshots(engine: str, place: Place, folder: Path) -> tuple[list[Snapshot], Ended]:
    """A copy for every step that every batch of a clean run reaches."""
    taken: list[Snapshot] = []

    def copy(step: str) -> None:
        number = sum(one.step == step for one in taken)
        taken.append(Snapshot(step, number, folder / f"{len(taken):04d}-{step}"))
        shutil.copytree(place.work, taken[-1].folder)

    ended = run_here(engine, place, at_steps(copy))
    return taken, ended


def halfway(taken: Sequence[Snapshot]) -> list[Snapshot]:
    """For each step, the copy that was made about two thirds of the way: there is something to go on with."""
    by_step: dict[str, list[Snapshot]] = {}
    for one in taken:
        by_step.setdefault(one.step, []).append(one)
    return [same[len(same) * 2 // 3] for same in by_step.values()]


@dataclass(frozen=True)
class Damage:
    """Something that is done to some files of a half-finished run; `names` are those that a message may tell."""

    name: str
    kind: str
    files: tuple[str, ...]
    do: Callable[[Path], None]
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {self.name} ({self.files[0]})"


def damages(
    snapshot: Snapshot, older: Snapshot, marker: Path, per_kind: int, twin: Snapshot | None = None
) -> Iterator[Damage]:
    """Every damage to some files of each kind: the newest, the oldest, and others; `twin` was made without the key."""
    for kind, files in files_by_kind(snapshot.folder).items():
        chance = random.Random(kind)
        chosen = dict.fromkeys([files[-1], files[0], *chance.sample(files, len(files))])
        for file in list(chosen)[:per_kind]:
            yield from _of_one(kind, file, files, snapshot, older, marker, chance, twin)


def _of_one(
    kind: str,
    file: str,
    files: Sequence[str],
    snapshot: Snapshot,
    older: Snapshot,
    marker: Path,
    chance: random.Random,
    twin: Snapshot | None,
) -> Iterator[Damage]:
    data = (snapshot.folder / file).read_bytes()
    for name, changed in _changes(data, marker, chance).items():
        if changed != data:
            yield Damage(name, kind, (file,), _writing(file, changed), _names(file))
    yield Damage("deleted", kind, (file,), lambda work: (work / file).unlink(), _names(file, or_folder=True))
    for name, other in _others(file, files, snapshot, older, twin).items():
        if other != data:
            yield Damage(name, kind, (file,), _writing(file, other), _names(file, or_folder=True))
    if others := [one for one in files if one != file and (snapshot.folder / one).read_bytes() != data]:
        other_file = chance.choice(others)
        names = (*_names(file, or_folder=True), *_names(other_file))
        yield Damage("swapped with another", kind, (file, other_file), _swapping(file, other_file), names)
    if (following := _next_name(file)) and not (snapshot.folder / following).exists():
        names = (*_names(file, or_folder=True), *_names(following))
        planted = pickle.dumps(_Planted(str(marker)))
        yield Damage("copied to the next number", kind, (following,), _writing(following, data), names)
        yield Damage("a pickle at the next number", kind, (following,), _writing(following, planted), names)


def _changes(data: bytes, marker: Path, chance: random.Random) -> Mapping[str, bytes]:
    planted = pickle.dumps(_Planted(str(marker)))
    changes = {"a pickle in its place": planted}
    starts = [match.start() for match in re.finditer(rb"\x80[\x02-\x05]", data)]
    for start in starts[:2]:  # what is before it may be read first, and what is behind it is never read
        changes[f"a pickle from byte {start} on"] = data[:start] + planted.ljust(len(data) - start, b"\0")
    if not data:
        return changes
    size = len(data)
    spots = {"first": 0, "header": min(10, size - 1), "middle": size // 2, "last": size - 1}
    spots |= {f"random ({spot})": spot for spot in sorted(chance.sample(range(size), min(3, size)))}
    for name, spot in spots.items():
        flipped = bytes([data[spot] ^ (1 << chance.randrange(8))])
        changes[f"bit flipped, {name} byte"] = data[:spot] + flipped + data[spot + 1 :]
    changes |= {"emptied": b"", "cut in half": data[: size // 2], "last byte cut off": data[:-1]}
    return changes | {"zeroed": bytes(size), "twice as long": data + data}


def _others(
    file: str, files: Sequence[str], snapshot: Snapshot, older: Snapshot, twin: Snapshot | None
) -> Mapping[str, bytes]:
    """What was true once, or elsewhere."""
    found = {}
    if (older.folder / file).exists():
        found["an older version"] = (older.folder / file).read_bytes()
    if (place := files.index(file)) > 0:
        found["the one before it in its place"] = (snapshot.folder / files[place - 1]).read_bytes()
    if twin is not None and (twin.folder / file).exists():
        found["made without the key"] = (twin.folder / file).read_bytes()
    return found


def damages_of_folders(snapshot: Snapshot, older: Snapshot) -> Iterator[Damage]:
    """What a user does with whole folders: an older copy of one, one that is gone, one that is another's."""

    def replaced(folder: str) -> Callable[[Path], None]:
        def do(work: Path) -> None:
            shutil.rmtree(work / folder)
            shutil.copytree(older.folder / folder, work / folder)

        return do

    def gone(folder: str) -> Callable[[Path], None]:
        return lambda work: shutil.rmtree(work / folder)

    where = ("checkpoint", "out/")
    yield Damage("an older copy", "checkpoint", ("checkpoint",), replaced("checkpoint"), where)
    yield Damage("an older copy", "out", ("out",), replaced("out"), where)
    for path in sorted(snapshot.folder.rglob("*")):
        if path.is_dir() and any(path.iterdir()):
            folder = str(path.relative_to(snapshot.folder))
            if folder not in ("checkpoint", "out"):  # without any checkpoint a run begins anew; its output is refused
                yield Damage("gone", kind_of(snapshot.folder, path), (folder,), gone(folder), (path.name, *where))


def try_damage(engine: str, place: Place, expected: dict, snapshot: Snapshot, damage: Damage, marker: Path) -> Verdict:
    """Go on with a damaged run; then with what its message advises, which is to put back what was there."""
    snapshot.restore(place)
    damage.do(place.work)
    kinds = ("CheckpointError", "SinkError") if damage.kind.startswith("out") else ("CheckpointError",)
    ended = run(engine, place)
    verdict = judge(ended, expected, damage.names, kinds)
    if marker.exists():
        marker.rmdir()
        return Verdict("CODE RAN", f"what was planted was run, and then: {ended.told()[:200]}")
    if verdict.outcome == RIGHT:
        after = judge(run(engine, place), expected, ())
    elif verdict.outcome == "refused":
        _put_back(snapshot, damage, place)
        after = judge(run(engine, place), expected, ())
    else:
        return verdict
    if after.outcome == RIGHT:
        return verdict
    when = "run once more" if verdict.outcome == RIGHT else "with the file put back"
    return Verdict(f"THEN {after.outcome}", f"{when}: {after.told}")


def _put_back(snapshot: Snapshot, damage: Damage, place: Place) -> None:
    for file in damage.files:
        kept, damaged = snapshot.folder / file, place.work / file
        if damaged.is_dir():
            shutil.rmtree(damaged)
        damaged.unlink(missing_ok=True)
        if kept.is_dir():
            shutil.copytree(kept, damaged)
        elif kept.exists():
            damaged.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(kept, damaged)


class _Planted:
    """Unpickling it runs code."""

    def __init__(self, marker: str) -> None:
        self._marker = marker

    def __reduce__(self):
        return os.mkdir, (self._marker,)


def _writing(file: str, data: bytes) -> Callable[[Path], None]:
    return lambda work: (work / file).write_bytes(data)


def _swapping(one: str, other: str) -> Callable[[Path], None]:
    def do(work: Path) -> None:
        first, second = (work / one).read_bytes(), (work / other).read_bytes()
        (work / one).write_bytes(second)
        (work / other).write_bytes(first)

    return do


def _next_name(file: str) -> str | None:
    """The name with its last number raised by one; hashes are no numbers."""
    folder, _, name = file.rpartition("/")
    if re.search(r"[0-9a-f]{16,}", re.sub(r"\b0\d+", "", name)) or not (numbers := list(re.finditer(r"\d+", name))):
        return None
    digits = numbers[-1]
    raised = str(int(digits[0]) + 1).zfill(len(digits[0]))
    return f"{folder}/{name[: digits.start()]}{raised}{name[digits.end() :]}"


def _names(file: str, or_folder: bool = False) -> tuple[str, ...]:
    """What a message may call a file; a name like `0` tells nothing without its folder."""
    parts = file.split("/")
    tail = parts[-1] if len(parts[-1]) >= _SHORTEST_TELLING_NAME else "/".join(parts[-2:])
    if or_folder and len(parts) > 2:
        return tail, "/".join(parts[1:-1])
    return (tail,)
