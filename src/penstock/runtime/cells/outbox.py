"""The way out of a cell: the only code that hands over chunks to readers, and waits for room there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from penstock.runtime.ports import Helped, Neighbour, Port

HelpCount = Callable[[str, str, int], int]
"""How much of what one operator makes for another its worker processes itself, by their names."""


class Outbox(ABC):
    """What has come of a worker's last chunk, and where it goes."""

    blocked_on: Port | None = None
    """The full port that it waits for."""

    @property
    @abstractmethod
    def is_empty(self) -> bool: ...

    @abstractmethod
    def flush(self) -> bool:
        """Send what is in here; `False` if there is no room, in which case the cell will be notified."""

    def hand_over(self) -> Neighbour | None:
        """Send the only chunk to a reader that no worker is in, and claim that reader."""
        return None

    @abstractmethod
    def help_readers(self) -> None:
        """Process the last part of what is in here for readers that are busy, with their own functions.

        What is helped with keeps its place behind the rest; its reader passes on what came of it.
        """


class PortOutbox(Outbox):
    """Chunks for ports."""

    def __init__(
        self, writer: Neighbour, now: Callable[[], float], on_full: Callable[[], None], help_count: HelpCount
    ) -> None:
        self.outputs: list[list[Port]] = []
        """The ports that read each output; dead letters come behind what the operators emit."""
        self.blocked_seconds = 0.0
        self._writer = writer
        self._now = now
        self._on_full = on_full
        self._help_count = help_count
        self._chunks: list[tuple[Port, list[Any], float]] = []
        self._blocked_since = 0.0

    def connect(self, outputs: Iterable[Iterable[Port]]) -> None:
        """Write to these ports from now on."""
        self.outputs = [list(targets) for targets in outputs]
        for targets in self.outputs:
            for port in targets:
                port.written_by(self._writer)

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    def give(self, port: int, values: list[Any], born: float) -> None:
        """Put values in, for every reader of an output port."""
        if values:
            for target in self.outputs[port]:
                target.total_given += len(values)
                self._chunks.append((target, values, born))

    def flush(self) -> bool:
        if len(self._chunks) == 1 and self.blocked_on is None:  # the common case, in few steps
            target, values, born = self._chunks.pop()
            rest = target.offer(values, born)
            if not rest:
                return True
            self._chunks.append((target, rest, born))
        while full := self._offered():
            # Noted before it registers: a reader that makes room notifies the cell, which then takes the note back.
            self._begin_to_wait(full)
            if all(port.await_room(self._writer) for port in full):
                return False
            self.end_waiting()
        self.end_waiting()
        return True

    def _offered(self) -> list[Port]:
        """Hand over what there is room for; the ports that are full keep the rest in here."""
        waiting, self._chunks = self._chunks, []
        full: list[Port] = []
        for target, values, born in waiting:
            rest = values if target in full else target.offer(values, born)
            if rest:
                if target not in full:
                    full.append(target)
                self._chunks.append((target, rest, born))
        return full

    def _begin_to_wait(self, full: list[Port]) -> None:
        now = self._now()
        if self.blocked_on is None:
            self._blocked_since = now
        self.blocked_on = full[0]
        self._note_full(full, now)
        self._on_full()

    def end_waiting(self) -> None:
        """There may be room again."""
        if self.blocked_on is None:
            return
        now = self._now()
        self.blocked_seconds += now - self._blocked_since
        self._note_full([], now)
        self.blocked_on = None

    def _note_full(self, full: list[Port], now: float) -> None:
        for targets in self.outputs:
            for port in targets:
                port.note_full(port in full, now)

    def full_ports(self) -> list[Port]:
        """All those whose room it waits for."""
        return [port for targets in self.outputs for port in targets if port.full_since is not None]

    def hand_over(self) -> Neighbour | None:
        """The way of a chunk through a quiet flow: no list of ready cells, no worker to be told."""
        if len(self._chunks) != 1 or self.blocked_on is not None:
            return None
        target, values, born = self._chunks[0]
        reader = target.reader
        if reader.depth <= self._writer.depth or not reader.turn.claim_idle():
            return None
        rest = target.offer(values, born, notifies=False)
        self._chunks = [(target, rest, born)] if rest else []
        return reader

    def help_readers(self) -> None:
        chunks, self._chunks = self._chunks, []
        for target, values, born in chunks:
            parts = with_help(self._writer.name, target, values, born, self._help_count)
            self._chunks += [(target, part, born) for part in parts]

    def end(self) -> None:
        """Nothing more comes from here: what was not sent is for no reader, and readers see the end."""
        for target, values, _ in self._chunks:
            target.drop(values)
        self._chunks.clear()
        for targets in self.outputs:
            for port in targets:
                port.close()


def with_help(helper: str, target: Port, values: list[Any], born: float, help_count: HelpCount) -> list[list[Any]]:
    """A chunk as what is left for a reader, and what was done for it; or all of it."""
    if isinstance(values, Helped):
        return [values]
    left = len(values) - help_count(helper, target.reader.name, len(values))
    helped = target.reader.helped(values[left:], born) if left < len(values) else None
    return [values] if helped is None else [part for part in (values[:left], helped) if part]
