"""Where measured points are kept, so that a run that was ended goes on where it was."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from figures.figure import Figure, Measure

Progress = Callable[[str, float], None]


class Results:
    """A file of JSON for each point, below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forgotten: set[Path] = set()

    def of(self, paper: str, figure: Figure, progress: Progress) -> Mapping[str, Any]:
        """The results of all points; those that are missing are measured now."""
        folder = self._folder_of(paper, figure)
        folder.mkdir(parents=True, exist_ok=True)
        missing = {name: one for name, one in figure.measures.items() if not _file(folder, name).exists()}
        if missing:
            _measure(missing, folder, 1 if figure.is_real else os.cpu_count() or 1, progress)
        return {name: json.loads(_file(folder, name).read_text()) for name in figure.measures}

    def forget(self, paper: str, figure: Figure) -> None:
        """Once: what was measured since then may be another figure's as well."""
        folder = self._folder_of(paper, figure)
        if folder in self._forgotten:
            return
        self._forgotten.add(folder)
        for path in folder.glob("*.json"):
            path.unlink()

    def _folder_of(self, paper: str, figure: Figure) -> Path:
        return self._folder / paper / (figure.points_of or figure.name)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name.replace('/', '-')}.json"


def _timed(measure: Measure) -> tuple[Any, float]:
    began = time.perf_counter()
    return measure(), time.perf_counter() - began


def _measure(measures: Mapping[str, Measure], folder: Path, workers: int, progress: Progress) -> None:
    """Each point is written as soon as it is there, whole or not at all."""
    with ProcessPoolExecutor(workers) as pool:
        waiting: dict[Future[tuple[Any, float]], str] = {
            pool.submit(_timed, one): name for name, one in measures.items()
        }
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                name = waiting.pop(future)
                result, seconds = future.result()
                path = _file(folder, name)
                path.with_suffix(".part").write_text(json.dumps(result))
                path.with_suffix(".part").replace(path)
                progress(name, seconds)
