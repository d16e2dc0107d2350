"""The only base class of driver-loop operators."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from penstock.runtime.context import LoopContext

LoopKind = Literal["sequential", "stateless", "keyed"]


class Operator:
    """A driver loop: subclass it, say how many ports it has, and write `process`.

    >>> import penstock as ps
    >>> class Pairs(ps.Operator):
    ...     async def process(self, ctx):
    ...         port = ctx.inputs[0]
    ...         while await ctx.wait_all({port: 2}):
    ...             await ctx.emit((port.pop(), port.pop()))
    >>> flow = ps.Flow("pairs")
    >>> result = ps.sinks.collect()
    >>> flow.add(Pairs(), flow.read(ps.sources.items(range(5)))).write(result)
    >>> _ = flow.run("sequential")
    >>> result.items
    [(0, 1), (2, 3)]
    """

    inputs: int = 1
    """How many input ports; an instance may set its own number in `__init__`."""
    outputs: int = 1
    controls: int = 0
    """Control inputs: the only legal way back in a cycle."""
    kind: ClassVar[LoopKind] = "sequential"

    @classmethod
    def has_a_say_at_the_ends(cls) -> bool:
        """Whether it defines `start` or `finish`."""
        return any(getattr(cls, hook) is not getattr(Operator, hook) for hook in ("start", "finish"))

    async def process(self, ctx: LoopContext) -> None:
        """The driver loop: wait for tuples, pop them, emit; return when there is nothing more to do."""
        raise NotImplementedError

    def start(self, ctx: LoopContext) -> Awaitable[None] | None:
        """Called once in the life of the flow, before `process`; may be a coroutine."""

    def finish(self, ctx: LoopContext) -> Awaitable[None] | None:
        """Called once in the life of the flow, after `process` has returned; may be a coroutine that emits."""
