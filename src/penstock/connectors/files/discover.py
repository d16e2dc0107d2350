"""The only code that turns paths, globs and directories into a list of files."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import FlowError, SourceError

PathLike = str | os.PathLike[str]
Paths = PathLike | Sequence[PathLike]


def checked_paths(what: str, paths: Paths) -> tuple[str, ...]:
    """The paths a user gave, as strings; looked at only when a flow runs."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise FlowError(f"{what} source: give a path, a glob or a directory; the list of paths is empty")
    return tuple(os.fspath(path) for path in given)


def find_files(what: str, paths: Sequence[str]) -> list[str]:
    """The files behind paths, globs and directories, each argument's in the order of their names."""
    files = [file for path in paths for file in _files_behind(what, path)]
    seen: set[str] = set()
    return [file for file in files if not (file in seen or seen.add(file))]  # type: ignore[func-returns-value]


def _files_behind(what: str, path: str) -> list[str]:
    if os.path.isdir(path):
        files = sorted(str(child) for child in Path(path).iterdir() if child.is_file() and _is_data(child.name))
        if not files:
            raise SourceError(f"{what} source: the directory {path!r} has no files to read")
        return files
    if os.path.exists(path):
        return [path]
    if glob.has_magic(path):
        matches = (match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
        files = sorted(match for match in matches if _is_data(os.path.basename(match)))
        if not files:
            raise SourceError(f"{what} source: no file matches {path!r} (looked from {os.getcwd()!r})")
        return files
    raise SourceError(f"{what} source: there is no file {path!r} (looked from {os.getcwd()!r})")


def _is_data(name: str) -> bool:
    """Names that begin with `_` or `.` are bookkeeping and unfinished files, as in Spark."""
    return not name.startswith(("_", "."))
