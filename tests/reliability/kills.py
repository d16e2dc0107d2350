"""Drivers that die, again and again, until their input is done: the only code that kills processes.

`python -m tests.reliability.kills ENGINE DEATH INPUTS WORK ITEMS` is one life of a driver.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.reliability import flows
from tests.reliability.trials import Ended, Place, at_steps, run_here, run_in_child

_LIFE_SECONDS = 900
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Death:
    """A signal to the driver itself: when it has reached so many steps, and so many seconds after that."""

    steps: int
    seconds: float
    signal: int = signal.SIGKILL

    def __str__(self) -> str:
        return f"{self.steps}:{self.seconds}:{self.signal}"

    @classmethod
    def parse(cls, text: str) -> Death:
        steps, seconds, number = text.split(":")
        return cls(int(steps), float(seconds), int(number))


NEVER = Death(1 << 30, 0.0)


def drawn(chance: random.Random, most_steps: int, most_seconds: float) -> Death:
    """At a step, at a moment that has nothing to do with steps, or before anything has happened."""
    number = signal.SIGTERM if chance.random() < 0.1 else signal.SIGKILL
    steps = chance.randint(0 if chance.random() < 0.1 else 1, most_steps)
    return Death(steps, 0.0 if chance.random() < 0.5 else chance.uniform(0, most_seconds), number)


@contextmanager
def dying(death: Death) -> Iterator[None]:
    """What goes around a run that is to die."""
    left = death.steps
    guard = threading.Lock()

    def die() -> None:
        os.kill(os.getpid(), death.signal)

    def now_or_later() -> None:
        if death.seconds:
            timer = threading.Timer(death.seconds, die)
            timer.daemon = True
            timer.start()
        else:
            die()
            threading.Event().wait(1)  # a signal that is not SIGKILL takes a moment

    def reached(step: str) -> None:
        nonlocal left
        with guard:
            left -= 1
            is_time = left == 0
        if is_time:
            now_or_later()

    if not left:
        now_or_later()
    with at_steps(reached):
        yield


class Lives:
    """A flow on one checkpoint, whose driver is killed and started again; each start on one of these engines."""

    def __init__(self, place: Place, engines: Sequence[str], seed: int, items: int = flows.ITEMS) -> None:
        self._place = place
        self._engines = engines
        self._items = items
        self.chance = random.Random(seed)
        self.deaths: list[str] = []
        """Engine, signal and moment of each."""

    def live(self, most_steps: int, most_seconds: float, least_deaths: int, at_each_step: bool = False) -> str:
        """Die and come again until that has happened so often, or the input is done; what went wrong, if anything.

        `at_each_step`: first when one step is reached, then at the second, and so on; and only then at random.
        """
        while len(self.deaths) < least_deaths:
            engine, death = self.chance.choice(self._engines), drawn(self.chance, most_steps, most_seconds)
            if at_each_step and len(self.deaths) < most_steps:
                death = Death(len(self.deaths) + 1, 0.0)
            ended = self._life(engine, death)
            if ended.signal:
                self.deaths.append(f"{engine} {death}")
            elif ended.error or ended.hangs:
                return f"life {len(self.deaths)}, on {engine} after {self.deaths[-1:]}: {ended.told()}"
            else:
                return ""
        ended = self._life(self.chance.choice(self._engines), NEVER)
        return "" if not (ended.error or ended.hangs or ended.signal) else f"the last life: {ended.told()}"

    def _life(self, engine: str, death: Death) -> Ended:
        if list(self._engines) == ["local"]:
            return run_in_child(self._place, dying, death, items=self._items)
        return live_once(engine, death, self._place, self._items)


def live_once(engine: str, death: Death, place: Place, items: int) -> Ended:
    """One life in a process of its own."""
    words = [engine, str(death), str(place.inputs), str(place.work), str(items)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
    life = subprocess.Popen(
        [sys.executable, "-m", "tests.reliability.kills", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        _, told = life.communicate(timeout=_LIFE_SECONDS)
    except subprocess.TimeoutExpired:
        return Ended(hangs=True)
    finally:
        with suppress(ProcessLookupError):  # a JVM without its driver ends by itself, but not at once
            os.killpg(life.pid, signal.SIGKILL)
        life.wait()
    if life.returncode < 0:
        return Ended(signal=-life.returncode)
    return Ended(error="" if life.returncode == 0 else "failed", message=told[-600:], outputs={})


def paused(chance: random.Random, times: int, most_seconds: float):
    """What to do to a running process: stop it and let it go on, several times."""

    def pause(pid: int) -> None:
        for _ in range(times):
            time.sleep(chance.uniform(0, most_seconds))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(chance.uniform(0, most_seconds))
                os.kill(pid, signal.SIGCONT)

    return pause


def python_workers() -> list[int]:
    """The processes that run Spark's tasks for this driver: forks of the daemons that its JVM has started."""
    parents, words = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                words[int(entry.name)] = (entry / "cmdline").read_bytes()

    def is_mine(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    daemons = {pid for pid in parents if b"pyspark.daemon" in words[pid] and is_mine(pid)}
    return sorted(pid for pid in daemons if parents[pid] in daemons)


@contextmanager
def dying_workers(chance: random.Random, most_seconds: float, died: list[int]) -> Iterator[None]:
    """In every batch, a moment after it is planned, a process is killed that runs tasks."""

    def kill_one() -> None:
        if workers := python_workers():
            victim = chance.choice(workers)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                died.append(victim)

    def reached(step: str) -> None:
        if step == "planned":
            threading.Timer(chance.uniform(0, most_seconds), kill_one).start()

    with at_steps(reached):
        yield


def main() -> None:
    engine, death, inputs, work, items = sys.argv[1:]
    place, when = Place(Path(inputs), Path(work)), Death.parse(death)
    ended = run_here(engine, place, nullcontext() if when == NEVER else dying(when), items=int(items))
    if ended.error or ended.hangs:
        sys.exit(ended.told() + "\n" + ended.frames[-1500:])


if __name__ == "__main__":
    main()
