"""The built-in operators with several inputs, written as any user would write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.operators.base import Operator

if TYPE_CHECKING:
    from penstock.runtime.context import LoopContext


class Zip(Operator):
    """One tuple of every input, together; ends with the shortest input."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs

    async def process(self, ctx: LoopContext) -> None:
        ports = ctx.inputs
        while await ctx.wait_all():
            together = min(len(port) for port in ports)
            await ctx.emit_many(zip(*[port.pop_many(together) for port in ports], strict=True))


class Merge(Operator):
    """Every tuple of every input, in the order in which they arrive; each input keeps its own order."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs

    async def process(self, ctx: LoopContext) -> None:
        while await ctx.wait_any():
            for port in ctx.inputs:
                await ctx.emit_many(port.pop_all())
