"""The driver loops of some keys of one operator: what they emit is noted with what made them do so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.flow.nodes import Loops, Node
from penstock.ordering.keys import firing_order, key_bytes
from penstock.runtime.context import LoopContext
from penstock.runtime.loop import DriverLoop, Ended


def loop_snapshots(loops: Mapping[bytes, DriverLoop | Ended], of: Iterable[bytes]) -> dict[bytes, Any]:
    """The keys and the snapshots of some loops."""
    return {identity: (loops[identity].key, loops[identity].snapshot()) for identity in of}


class KeyedLoops:
    """A loop for each key that has had a tuple; `kept` finds the snapshot of one from an earlier life."""

    def __init__(
        self,
        node: Node,
        fail: Callable[[Any, BaseException], None],
        kept: Callable[[bytes], Any] = lambda _: None,
        is_stopping: Callable[[], bool] = lambda: False,
        knows_changes: bool = False,
    ) -> None:
        assert isinstance(node.kind, Loops)
        self._node = node
        self._kind = node.kind
        self._fail = fail
        self._kept = kept
        self._is_stopping = is_stopping
        self.loops: dict[bytes, DriverLoop | Ended] = {}
        self.because: Any = None
        """What makes them do what they do now."""
        self.found: dict[int, list[tuple[Any, Any]]] = defaultdict(list)
        """By output port: why something came out, and what."""
        self.emitted = 0
        self._touched: set[bytes] | None = set() if knows_changes else None
        """Where changes are asked for: the keys that had a tuple."""

    def arrive(self, side: int, value: Any, because: Any) -> None:
        """A tuple on one of the inputs: let the loop of its key go on."""
        self.because = because
        try:
            key = self._kind.keys[side].fn(value)
            identity = key_bytes(key)
        except BaseException as error:
            self._fail(value, error)
            return
        loop = self.loops.get(identity) or self.add(identity, key, self._kept(identity))
        if isinstance(loop, Ended):
            return
        if self._touched is not None:
            self._touched.add(identity)
        loop.ports[side].arrive(value)
        self._go_on(identity, loop)

    def end(self, side: int, identity: bytes) -> None:
        """An input has ended: let the loop of a key say its last words."""
        self.because = (side, *firing_order(identity))
        loop = self.loops[identity]
        if not isinstance(loop, Ended):
            loop.ports[side].end()
            self._go_on(identity, loop)

    def add(self, identity: bytes, key: Any, kept: Any = None) -> DriverLoop | Ended:
        """The loop of a key that has none yet in this life; with a snapshot, as it was in another one."""
        node = self._node
        context = LoopContext(
            node.name,
            len(node.inputs),
            0,
            self._emit,
            node.outputs,
            key=key,
            has_state=True,
            is_stopping=self._is_stopping,
        )
        loop = DriverLoop(node.name, self._kind.operator, context)
        if kept is not None:
            loop.restore(kept)
        self.loops[identity] = loop
        self._forget_ended(identity, loop)
        return self.loops[identity]

    def note(self, port: int, value: Any) -> None:
        """Something else came out because of what happens now."""
        self.found[port].append((self.because, value))

    def take_found(self) -> dict[int, list[tuple[Any, Any]]]:
        taken, self.found = self.found, defaultdict(list)
        return taken

    def snapshots(self) -> dict[bytes, Any]:
        """The key and the snapshot of each."""
        return loop_snapshots(self.loops, self.loops)

    def take_changed(self) -> dict[bytes, Any]:
        """The same of those that had a tuple since this was last called."""
        assert self._touched is not None
        touched, self._touched = self._touched, set()
        return loop_snapshots(self.loops, touched)

    def leave(self) -> None:
        """End them where they stand."""
        for loop in self.loops.values():
            loop.close()

    def _go_on(self, identity: bytes, loop: DriverLoop) -> None:
        while not loop.is_done and loop.context.can_go_on():
            loop.resume_or_restart(self._fail)
        self._forget_ended(identity, loop)

    def _forget_ended(self, identity: bytes, loop: DriverLoop) -> None:
        if loop.is_done:
            self.loops[identity] = Ended(loop.key)

    def _emit(self, port: int, value: Any) -> None:
        self.note(port, value)
        self.emitted += 1
