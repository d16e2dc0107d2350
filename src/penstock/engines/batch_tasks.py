"""How many tasks the stages of a batch have: what a flow says, and what may be asked for."""

from __future__ import annotations

from penstock.errors import FlowError
from penstock.plan.groups import Group, Plan, Spread

MOST_TASKS = 1024


def given_tasks(group: Group) -> int | None:
    """The number that the flow fixes, by what the group is or by `replicas=`; `None` where any will do."""
    if group.spread is Spread.ONE:
        return 1
    return max((node.replicas for node in group.nodes if node.replicas), default=None)


def first_tasks(plan: Plan, parallelism: int) -> dict[int, int]:
    """By group, how many tasks a run begins with: as the flow says, or as many as can run at once."""
    return {group.number: given_tasks(group) or parallelism for group in plan.groups}


def rescaled_group(plan: Plan, operator: str, tasks: int) -> Group:
    """The group that an operator's tasks are those of; a `FlowError` if it can't have so many."""
    if isinstance(tasks, bool) or not isinstance(tasks, int) or not 1 <= tasks <= MOST_TASKS:
        raise FlowError(f"replicas are a number from 1 to {MOST_TASKS}, not {tasks!r}")
    if all(node.name != operator for node in plan.graph.nodes):
        raise FlowError(f"flow {plan.graph.flow!r} has no operator {operator!r}")
    group = plan.group_of(operator)
    if group.spread is Spread.ONE and tasks > 1:
        raise FlowError(
            f"operator {operator!r} sees all tuples in one sequence, so its stage has one task, not {tasks}"
        )
    return group
