"""Which kernel some function operators have."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.clock import wall_time
from penstock.flow.nodes import Applies, Node
from penstock.operators.functions import Form
from penstock.runtime.cells.chains import ChainKernel
from penstock.runtime.cells.kernel import BatchKernel
from penstock.runtime.chain import compile_chain, make_part
from penstock.runtime.surroundings import Surroundings


def chain_kernel(run: Surroundings, place: float, nodes: Sequence[Node]) -> ChainKernel:
    """Functions of single tuples, with fresh states, in one loop."""
    parts = [make_part(node, wall_time(run.clock), run.settings.knows_changes) for node in nodes]
    return ChainKernel(run.flow, place, compile_chain(nodes, parts), run.clock)


def function_kernel(run: Surroundings, place: float, nodes: Sequence[Node]) -> BatchKernel | ChainKernel:
    """One for functions of whatever form."""
    match nodes[0].kind:
        case Applies(form=Form.BATCH | Form.ARROW):
            return BatchKernel(run.flow, place, nodes)
    return chain_kernel(run, place, nodes)
