"""The life of one driver loop: started, resumed, restarted, finished. Only the holder of a loop may call it."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
from collections.abc import Callable
from itertools import islice
from typing import Any

from penstock.errors import CheckpointError, FlowError
from penstock.operators.base import Operator
from penstock.runtime.context import LoopContext, Trap
from penstock.runtime.failures import popped_value

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

Place = tuple[tuple[Any, Any], ...]
"""Where a coroutine stands: in every frame down to the wait, the code and the range of source text."""


_ENDED = (True, True, None, ())
"""The snapshot of a loop that has returned: what else it knew is never asked for."""


class Ended:
    """What is left of the loop of a key that has returned: a mark, for what still comes for its key is dropped."""

    __slots__ = ("key",)
    is_done = True

    def __init__(self, key: Any) -> None:
        self.key = key

    def snapshot(self) -> Any:
        return _ENDED

    def close(self) -> None:
        """There is nothing to end."""


class DriverLoop:
    """One operator's coroutine, from `start` through `process` to `finish`.

    With `restart_at_waits`, it begins anew whenever it waits at home (the first wait that it reached) and has popped
    something, with nothing but its ports and its pickled state: what a checkpoint would have kept.
    """

    def __init__(self, name: str, operator: Operator, context: LoopContext, restart_at_waits: bool = False) -> None:
        self.context = context
        self.ports = [*context.inputs, *context.controls]
        self.has_begun = False
        self.is_done = False
        self._name = name
        self._original = operator
        self._restart_at_waits = restart_at_waits
        self._home: Place | None = None
        self._coroutine = self._life(self._own_copy(), is_first=True)

    @property
    def key(self) -> Any:
        return self.context.key

    def resume(self) -> Trap | None:
        """Run to the next trap; `None` when the loop has returned. What the loop raises comes out of here."""
        self.has_begun = True
        trap = self._send()
        if self._home is None and trap is Trap.WAIT:
            self._home, _ = _standing(self._coroutine)
        if trap is Trap.WAIT and self._restart_at_waits and self._is_home_after_a_pop():
            self._keep_what_a_checkpoint_keeps()
            self.restart()
            trap = self._send()
        return trap

    def _send(self) -> Trap | None:
        try:
            return self._coroutine.send(None)  # type: ignore[no-any-return]
        except StopIteration:
            self.is_done = True
            return None

    def restart(self) -> None:
        """Begin `process` anew, with the state and the ports as they are."""
        self._coroutine.close()
        self._coroutine = self._life(self._own_copy(), is_first=False)

    def resume_or_restart(self, failed: Callable[[Any, BaseException], None]) -> None:
        """Run to the next trap; if the loop raises instead, tell what it was working on, and begin anew."""
        try:
            self.resume()
        except BaseException as error:
            failed(popped_value(list(self.context.popped)), error)
            self.context.popped.clear()
            self.restart()

    def close(self) -> None:
        """End it where it stands."""
        self._coroutine.close()
        self.is_done = True

    async def _life(self, operator: Operator, is_first: bool) -> None:
        if is_first:
            await _maybe_awaitable(operator.start(self.context))
        await operator.process(self.context)
        await _maybe_awaitable(operator.finish(self.context))

    def _own_copy(self) -> Operator:
        try:
            return copy.deepcopy(self._original)
        except BaseException as error:
            raise FlowError(
                f"operator {self._name!r} can't be copied ({type(error).__name__}: {error}); make what can't be copied "
                "in process(), not in __init__"
            ) from error

    def _is_home_after_a_pop(self) -> bool:
        has_popped = bool(self.context.popped)
        if has_popped:
            self._check_home()
        return has_popped

    def _check_home(self) -> None:
        place, where = _standing(self._coroutine)
        if place != self._home:
            raise CheckpointError(
                f"operator {self._name!r} waits at {where} after it has taken tuples, and a restart would lose them: "
                "loops are restarted from their first wait only. Wait for everything at once with "
                "ctx.wait_all({port: count, …}), or keep what was taken in ctx.state and wait in one place"
            )

    def snapshot(self) -> Any:
        """What a restart needs: the state, and the tuples that wait in the loop's hands."""
        if self.is_done:
            return _ENDED
        if self.has_begun:
            self._check_home()
        state = self.context.state if self.context.has_state else None
        return self.has_begun, False, state, [port.waiting() for port in self.ports]

    def restore(self, kept: Any) -> None:
        """Begin where a snapshot was taken; to be called before the first `resume`."""
        has_begun, is_done, state, waiting = kept
        if is_done:
            self.close()
            return
        if has_begun:
            self.restart()
        if state is not None:
            self.context.replace_state(state)
        for port, values in zip(self.ports, waiting, strict=True):
            if values:
                port.arrive_many(values)

    def _keep_what_a_checkpoint_keeps(self) -> None:
        self.context.popped.clear()
        if not self.context.has_state:
            return
        try:
            self.context.replace_state(pickle.loads(pickle.dumps(self.context.state)))
        except BaseException as error:
            raise CheckpointError(
                f"operator {self._name!r}: its ctx.state can't be kept, because it can't be pickled: {error}"
            ) from error


async def _maybe_awaitable(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


def _standing(coroutine: Any) -> tuple[Place, str]:
    """The place of a suspended coroutine, and the user's line."""
    frames = []
    where = "?"
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is None:
            break
        if not frame.f_code.co_filename.startswith(_PACKAGE + os.sep + "runtime"):
            # By source range, not by instruction: the condition of a `while` is compiled twice.
            source_range = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
            frames.append((frame.f_code, source_range))
            where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return tuple(frames), where
