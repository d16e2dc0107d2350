"""Where a thread stands that does not come back, and the only code that interrupts one."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import sysconfig
import threading
from collections.abc import Sequence
from types import FrameType

from penstock.flow.nodes import Applies, Node, Remembers
from penstock.observe.report import LeftBehind

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})


waits_for: dict[int, int] = {}
"""By thread: the one that does something for it meanwhile."""


_looking = threading.Lock()


class Abandoned(BaseException):
    """Raised in a thread that was left behind, as soon as it runs Python again: nothing waits for what it does."""


def left_behind(nodes: Sequence[Node], thread: int) -> LeftBehind:
    """Which of these operators a thread is in, and at which line."""
    frames = _frames(thread)
    codes = {frame.f_code for frame in frames}
    inside = [node for node in nodes if _code_of(node) in codes]
    return LeftBehind(" + ".join(node.name for node in inside[:1] or nodes), _where(frames))


def standing(thread: int) -> str:
    """The line that a thread stands at, as far as possible a line of the user's."""
    return _where(_frames(thread))


def is_in_users_code(thread: int) -> bool:
    return any(is_users(frame.f_code.co_filename) for frame in _frames(thread))


def abandon(thread: int) -> None:
    """Have a thread unwind when it comes back from wherever it is: no other thread waits for what it does."""
    if hasattr(ctypes, "pythonapi"):
        for one in {thread, waits_for.get(thread, thread)}:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(one), ctypes.py_object(Abandoned))


def _frames(thread: int) -> list[FrameType]:
    """From the innermost outwards."""
    found = []
    frame = _innermost(waits_for.get(thread, thread))
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _innermost(thread: int) -> FrameType | None:
    """Without the garbage collector: Python 3.11 looks under a lock that a collection on the way would wait for."""
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().get(thread)
        finally:
            if collects:
                gc.enable()


def is_users(file: str) -> bool:
    """Whether code in this file is the user's: not ours, not Python's, not an installed library's."""
    return not file.startswith((_OURS, "<penstock", "<frozen", *_INSTALLED))


def is_ours(file: str) -> bool:
    """Whether code in this file is Penstock's, written or generated."""
    return file.startswith((_OURS, "<penstock"))


def _where(frames: Sequence[FrameType]) -> str:
    own = [frame for frame in frames if is_users(frame.f_code.co_filename)]
    for frame in own or frames[:1]:
        return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    return "a place that is not known"


def _code_of(node: Node) -> object:
    fn = node.kind.fn if isinstance(node.kind, Applies | Remembers) else None
    return getattr(fn, "__code__", node)
