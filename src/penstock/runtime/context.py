"""The only door between a driver loop and the runtime: ports to read, traps to wait in."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any

from penstock.observe.arrivals import Sight

_NONE: Any = object()

Spec = Mapping["InputPort | int", int]


class Trap(Enum):
    """Why a loop gives control back."""

    WAIT = "wait"
    FULL = "full"


@types.coroutine
def trapped(trap: Trap) -> Generator[Trap, None, None]:
    yield trap


class InputPort:
    """Where the tuples of one input wait for the loop; what it shows changes only while the loop awaits."""

    def __init__(self, context: LoopContext, label: str) -> None:
        self.pop = self._pop
        """Take the next tuple."""
        self._context = context
        self.label = label
        self._hidden: deque[Any] = deque()
        self._seen: deque[Any] = deque()
        self._batch: list[Any] = []
        self.arrived = 0
        self.shown = 0
        self.ended = False
        """No more tuples will come; the loop sees it as `closed` once it has been shown."""
        self.closed = False
        """Whether no more tuples can come; some may still be waiting."""

    def __len__(self) -> int:
        return len(self._seen)

    def _pop(self) -> Any:
        value = self.peek()
        self._context.popped.append(value)
        return self._seen.popleft()

    def pop_many(self, count: int) -> list[Any]:
        """Take the next `count` tuples."""
        seen = self._seen
        if count > len(seen):
            raise IndexError(f"{self.label} holds {len(seen)} tuples, not {count}; wait for them first")
        if count == len(seen):
            values = list(seen)
            seen.clear()
        else:
            values = [seen.popleft() for _ in range(count)]
        self._context.popped += values
        return values

    def pop_all(self) -> list[Any]:
        """Take all the tuples there are."""
        return self.pop_many(len(self._seen))

    def peek(self) -> Any:
        """Look at the next tuple and leave it."""
        if not self._seen:
            raise IndexError(f"{self.label} holds no tuple; wait for one first")
        return self._seen[0]

    async def __aiter__(self) -> AsyncIterator[Any]:
        while await self._context.wait_all({self: 1}):
            yield self.pop()

    def arrive(self, value: Any) -> None:
        """For the runtime: a tuple has come."""
        self._hidden.append(value)
        self.arrived += 1

    def show(self, arrived: int, closed: bool) -> None:
        """For the runtime: let the loop see everything up to this many arrivals."""
        if self._hidden and arrived == self.arrived:
            self._seen.extend(self._hidden)
            self._hidden.clear()
            self.shown = arrived
            self._batch = list(self._seen)
        while self.shown < arrived:
            self._seen.append(self._hidden.popleft())
            self.shown += 1
        self.closed = closed

    def end(self) -> None:
        """For the runtime: no more tuples will come."""
        self.ended = True

    def arrive_many(self, values: list[Any]) -> None:
        """For the runtime: tuples have come."""
        self._hidden.extend(values)
        self.arrived += len(values)

    def be_fast(self) -> None:
        """For the runtime: what has arrived is seen at once, and what is taken is not noted."""
        self.pop = self._seen.popleft
        self.arrive_many = self.arrive_in_sight  # type: ignore[method-assign]

    def arrive_in_sight(self, values: list[Any]) -> None:
        """For the runtime: tuples have come, and the loop, which is waiting, sees them at once."""
        self._batch = [*self._seen, *values] if self._seen else values
        self._seen.extend(values)
        self.arrived += len(values)
        self.shown = self.arrived

    @property
    def last(self) -> Any:
        """For the runtime: the tuple that was taken last, where that is known."""
        taken = len(self._batch) - len(self._seen)
        return self._batch[taken - 1] if 0 < taken <= len(self._batch) else _NONE

    @property
    def held(self) -> int:
        """For the runtime: how many tuples are in the loop's hands."""
        return len(self._seen) + len(self._hidden)

    def waiting(self) -> list[Any]:
        """For the runtime: the tuples in the loop's hands."""
        return [*self._seen, *self._hidden]

    def can_have(self, count: int) -> bool:
        return len(self._seen) + len(self._hidden) >= count

    def show_enough(self, count: int) -> None:
        """Show no more than what makes `count` tuples visible; the end is shown when the repeated run saw it."""
        self.show(min(self.arrived, self.shown + max(0, count - len(self._seen))), self.closed)


class LoopContext:
    """What a driver loop is given: its ports, its state, and the calls in which it waits.

    `replay` shows it the arrivals of an earlier run; `record` takes down those of this one.
    """

    def __init__(
        self,
        operator: str,
        inputs: int,
        controls: int,
        send: Callable[[int, Any], None],
        outputs: int,
        *,
        key: Any = None,
        has_state: bool = True,
        is_stopping: Callable[[], bool] = lambda: False,
        replay: Iterable[Sight] = (),
        record: Callable[[Sight], None] | None = None,
    ) -> None:
        self.inputs = [InputPort(self, f"input {place} of {operator!r}") for place in range(inputs)]
        self.controls = [InputPort(self, f"control {place} of {operator!r}") for place in range(controls)]
        self.key = key
        self._stopping = False
        self.wanted: dict[InputPort, int] = {}
        """For the runtime: what the loop waits for, or has waited for last."""
        self.popped: list[Any] = []
        """For the runtime: what was taken since the last wait."""
        self._operator = operator
        self._ports = [*self.inputs, *self.controls]
        self._send = send
        self._outputs = outputs
        self._state: dict[Any, Any] | None = {} if has_state else None
        self._is_stopping = is_stopping
        self._step = 0
        self._to_replay = deque(replay)
        self._record = record
        self._last_recorded: Sight | None = None
        self._can_go_on: Callable[[], bool] = always

    @property
    def state(self) -> dict[Any, Any]:
        """What survives a checkpoint and moves with the operator; local variables don't."""
        if self._state is None:
            raise AttributeError(f"operator {self._operator!r} is stateless, so it has no ctx.state")
        return self._state

    @property
    def stopping(self) -> bool:
        """Whether the flow was asked to stop."""
        return self._stopping

    async def wait_all(self, spec: Spec | None = None) -> bool:
        """Wait until every port has its count (one on every input by default); `False` once that can never be."""
        wanted = self.wanted = self._wanted(spec)
        self._step += 1

        def never() -> bool:
            return any(port.ended and not port.can_have(count) for port, count in wanted.items())

        def available() -> bool:
            return all(port.can_have(count) for port, count in wanted.items())

        await self._until(lambda: available() or never())
        if not self._look():
            for port, count in wanted.items():
                port.show_enough(count)
        return all(len(port) >= count for port, count in wanted.items())

    async def wait_any(self, spec: Spec | None = None) -> bool:
        """Wait until some port has its count (one on any input by default); `False` once that can never be."""
        wanted = self.wanted = self._wanted(spec)
        self._step += 1

        def never() -> bool:
            return all(port.ended and not port.can_have(count) for port, count in wanted.items())

        def available() -> bool:
            return any(port.can_have(count) for port, count in wanted.items())

        await self._until(lambda: available() or never())
        self._look()
        return any(len(port) >= count for port, count in wanted.items())

    async def emit(self, value: Any, port: int = 0) -> None:
        """Send a tuple to everything that reads this output port."""
        await self.emit_many((value,), port)

    async def emit_many(self, values: Iterable[Any], port: int = 0) -> None:
        """Send tuples, in order."""
        check_output(self._operator, self._outputs, port)
        self._step += 1
        self._can_go_on = always
        for value in values:
            self._send(port, value)
            await trapped(Trap.FULL)
        if self._recorded() is not None:
            await self._until(always)
        self._look()

    # For the runtime

    def last_popped(self) -> list[Any]:
        """The tuple that was taken last from each port, where that is known."""
        return [port.last for port in self._ports if port.last is not _NONE]

    def can_go_on(self) -> bool:
        """Whether resuming the loop would get it any further."""
        return self._can_go_on()

    def sight(self) -> Sight:
        """What has arrived by now."""
        return Sight(
            self._step,
            tuple(port.arrived for port in self._ports),
            tuple(port.ended for port in self._ports),
            self._is_stopping(),
        )

    @property
    def has_state(self) -> bool:
        return self._state is not None

    def replace_state(self, state: dict[Any, Any]) -> None:
        self._state = state

    def _wanted(self, spec: Spec | None) -> dict[InputPort, int]:
        if spec is None:
            return dict.fromkeys(self.inputs, 1)
        wanted: dict[InputPort, int] = {}
        for given, count in spec.items():
            port = self._input(given)
            if count < 0:
                raise ValueError(f"{port.label} can't be waited for with a count of {count}: it is a number from 0 up")
            wanted[port] = max(count, wanted.get(port, 0))
        return wanted

    def _input(self, given: InputPort | int) -> InputPort:
        """The port that a spec names, itself or by its number."""
        if isinstance(given, int):
            if 0 <= given < len(self.inputs):
                return self.inputs[given]
            raise IndexError(
                f"operator {self._operator!r} has {len(self.inputs)} inputs, so there is no port {given} to wait for"
            )
        if given not in self._ports:
            raise ValueError(f"operator {self._operator!r} waits for a port that is not its own: {given!r}")
        return given

    def _recorded(self) -> Sight | None:
        """What the run that is repeated saw at this await, if that was something new."""
        if self._to_replay and self._to_replay[0].step == self._step:
            return self._to_replay[0]
        return None

    async def _until(self, condition: Callable[[], bool]) -> None:
        recorded = self._recorded()
        if recorded is not None:
            condition = partial(self._has_arrived, recorded)
        self._can_go_on = condition
        await trapped(Trap.WAIT)
        while not condition():
            await trapped(Trap.WAIT)
        self.popped.clear()

    def _has_arrived(self, sight: Sight) -> bool:
        return all(
            port.arrived >= arrived and port.ended >= closed
            for port, arrived, closed in zip(self._ports, sight.arrived, sight.closed, strict=True)
        )

    def _look(self) -> bool:
        """Show the loop what there is; `False` where a repeated run saw nothing new here."""
        sight = self._recorded()
        if sight is not None:
            self._to_replay.popleft()
        elif self._to_replay:
            return False
        else:
            sight = self.sight()
        for port, arrived, closed in zip(self._ports, sight.arrived, sight.closed, strict=True):
            port.show(arrived, closed)
        self._stopping = sight.stopping
        self._take_down(sight)
        return True

    def _take_down(self, sight: Sight) -> None:
        last = self._last_recorded
        if self._record is not None and (last is None or _content(last) != _content(sight)):
            self._record(sight)
            self._last_recorded = sight


def always() -> bool:
    return True


def check_output(operator: str, outputs: int, port: int) -> None:
    """Only outputs that are there can be emitted to."""
    if not 0 <= port < outputs:
        raise IndexError(f"operator {operator!r} has {outputs} outputs, so there is no port {port}")


def _content(sight: Sight) -> tuple[Any, ...]:
    return sight.arrived, sight.closed, sight.stopping
