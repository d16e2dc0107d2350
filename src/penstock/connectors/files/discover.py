"""The only code that says what a path means: which URIs are local, which files a glob or a directory has."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from penstock.connectors.source import OnChange
from penstock.errors import FlowError, SourceError

_URI = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]+)://(?P<host>[^/]*)(?P<rest>.*)", re.DOTALL)
# `Path("s3://bucket/x")` has lost a slash by the time that it comes here.
_URI_OF_A_PATH = re.compile(
    r"(?P<scheme>s3[an]?|gs|gcs|abfss?|wasbs?|adl|az|hdfs|https?|ftp|sftp|dbfs|file):(?P<host>)(?P<rest>/.*)", re.DOTALL
)
PathLike = str | os.PathLike[str]
Paths = PathLike | Sequence[PathLike]


def checked_paths(what: str, paths: Paths) -> tuple[str, ...]:
    """The paths a user gave, as strings; looked at only when a flow runs."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise FlowError(f"{what} source: give a path, a glob or a directory; the list of paths is empty")
    return tuple(local_path(f"{what} source", path) for path in given)


def local_path(what: str, path: PathLike) -> str:
    """A path as the operating system knows it; a `file:` URI is one, and any other URI is refused.

    >>> local_path("csv source", "file:///data/a%20b.csv"), local_path("csv source", "C:/data/12:30.csv")
    ('/data/a b.csv', 'C:/data/12:30.csv')
    >>> local_path("csv source", "file:/data/a.csv")  # as Java and Spark show it
    '/data/a.csv'
    """
    text = os.fspath(path)
    found = (isinstance(path, str) and _URI.match(text)) or _URI_OF_A_PATH.match(text)
    if not found:
        return text
    scheme = found["scheme"].lower()
    if scheme != "file":
        raise FlowError(
            f"{what}: {text!r} is on {scheme!r}, and files are read and written on local (or mounted) file systems "
            "only; give a path or file:///…, or use ps.sources.spark and ps.sinks.spark, which go wherever Spark does"
        )
    if not isinstance(path, str):
        raise FlowError(f"{what}: Path({text!r}) was a URI; give it as a string, or the path alone")
    if found["host"] or not found["rest"]:
        raise FlowError(f"{what}: {text!r} names another host; a local file is file:///, then its absolute path")
    return unquote(found["rest"])


def checked_folder(what: str, path: object) -> str:
    """The path of a directory as text.

    >>> checked_folder("engine 'local': checkpoint=", "state/clicks")
    'state/clicks'
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise FlowError(f"{what} is the path of a directory, not {path!r}")
    return text


def checked_on_change(what: str, on_change: OnChange) -> OnChange:
    if on_change not in ("error", "restart"):
        raise FlowError(f"{what} source: on_change= is 'error' or 'restart', not {on_change!r}")
    return on_change


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
