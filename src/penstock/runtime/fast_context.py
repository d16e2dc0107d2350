"""A driver loop's context whose common paths are plain calls: no coroutine is made unless the loop must wait.

`wait_all` and `emit` are closures over the visible tuples and the outbox. They return futures that are done, which is
the cheapest thing to await; only when a port is short, or the outbox has grown to a chunk, is there a coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from penstock.runtime.context import InputPort, LoopContext, Spec, Trap, always, check_output, trapped


class _NoEventLoop:
    """Futures that are done never ask their loop for anything else."""

    def get_debug(self) -> bool:
        return False


def _done(result: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.Future(loop=_NoEventLoop())  # type: ignore[arg-type]
    future.set_result(result)
    return future


class FastContext(LoopContext):
    """For loops whose arrivals are not recorded and whose failures need not name every tuple taken."""

    def __init__(
        self, operator: str, inputs: int, controls: int, outboxes: list[list[Any]], chunk: int, **options: Any
    ) -> None:
        super().__init__(operator, inputs, controls, _unused, len(outboxes), **options)
        for port in self.inputs + self.controls:
            port.be_fast()
        self.wait_all = _wait_all(self.inputs, super().wait_all)  # type: ignore[method-assign]
        self.wait_any = _wait_any(self.inputs, super().wait_any)  # type: ignore[method-assign]
        self.emit, self.emit_many = _emits(self, operator, outboxes, chunk)  # type: ignore[method-assign]

    @property
    def stopping(self) -> bool:
        return self._is_stopping()


def _unused(port: int, value: Any) -> None:
    raise AssertionError("a fast context emits into its outboxes")


def _wait_all(ports: list[InputPort], slow: Callable[[Spec | None], Any]) -> Any:
    boxes = [port._seen for port in ports]
    yes = _done(True)

    def specified(spec: Any) -> Any:
        for port, count in spec.items():
            if isinstance(port, int) or not 0 <= count <= len(port._seen):
                return slow(spec)
        return yes

    if len(boxes) == 1:
        (only,) = boxes

        def wait_one(spec: Spec | None = None) -> Any:
            if spec is None:
                return yes if only else slow(None)
            return specified(spec)

        return wait_one
    if len(boxes) == 2:
        left, right = boxes

        def wait_two(spec: Spec | None = None) -> Any:
            if spec is None:
                return yes if left and right else slow(None)
            return specified(spec)

        return wait_two

    def wait_many(spec: Spec | None = None) -> Any:
        if spec is None:
            return yes if all(boxes) else slow(None)
        return specified(spec)

    return wait_many


def _wait_any(ports: list[InputPort], slow: Callable[[Spec | None], Any]) -> Any:
    boxes = [port._seen for port in ports]
    yes = _done(True)

    def wait_any(spec: Spec | None = None) -> Any:
        if spec is None:
            return yes if any(boxes) else slow(None)
        has_enough = False
        for port, count in spec.items():
            if isinstance(port, int) or count < 0:
                return slow(spec)
            has_enough = has_enough or len(port._seen) >= count
        return yes if has_enough else slow(spec)

    return wait_any


def _emits(context: FastContext, operator: str, outboxes: list[list[Any]], chunk: int) -> tuple[Any, Any]:
    done = _done(None)
    first = outboxes[0] if outboxes else []

    async def full() -> None:
        context._can_go_on = always
        await trapped(Trap.FULL)

    def emit(value: Any, port: int = 0) -> Any:
        if port or not outboxes:
            check_output(operator, len(outboxes), port)
            box = outboxes[port]
        else:
            box = first
        box.append(value)
        return done if len(box) < chunk else full()

    def emit_many(values: Iterable[Any], port: int = 0) -> Any:
        check_output(operator, len(outboxes), port)
        box = outboxes[port]
        box.extend(values)
        return done if len(box) < chunk else full()

    return emit, emit_many
