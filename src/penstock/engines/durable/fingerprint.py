"""What of a flow a checkpoint depends on, and what to do where that has changed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from penstock.flow.nodes import Graph, Loops, Node, Reads, Remembers, Waits

NEW = "new"
"""Stands for an operator that was declared to begin empty, before the flow has said what it is."""


def fingerprint(graph: Graph) -> dict[str, str]:
    """The sources, and the operators with state: what each is."""
    return {node.name: told for node in graph.nodes if (told := _described(node))}


def _described(node: Node) -> str:
    match node.kind:
        case Reads(source=source):
            return f"source {type(source).__name__}"
        case Remembers(key=key, ttl=ttl):
            by = "no key" if key is None else f"key {', '.join(key.columns) or 'function'}"
            return f"state by {by}" + ("" if ttl is None else " with a ttl")
        case Waits(logic=logic):
            return f"event time: {type(logic).__name__}"
        case Loops(operator=operator) if operator.kind != "stateless":
            return f"driver loop {type(operator).__name__} with {len(node.inputs)} inputs"
    return ""


def changes_to_tell(root: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has changed, and the commands that let the flow go on; nothing where nothing has.

    >>> print(changes_to_tell("here", {"count": "state by key user"}, {"counted": "state by key user"}))
    'counted' (state by key user) has the place of 'count'. To go on: if it is the same operator, 'penstock checkpoint
    rename here count counted'; if not, 'penstock checkpoint rename here --drop count --add counted'
    """
    gone = [name for name in before if name not in now]
    new = [name for name in now if name not in before]
    other = [name for name in now if name in before and before[name] not in (now[name], NEW)]
    if not (gone or new or other):
        return ""
    command = f"penstock checkpoint rename {shlex.quote(root)}"
    told, ways, flags = [], [], list[str]()
    for name in gone[:]:
        twin = next((one for one in new if now[one] == before[name]), None)
        if twin is not None:
            gone.remove(name)
            new.remove(twin)
            told.append(f"{twin!r} ({now[twin]}) has the place of {name!r}")
            one, two = shlex.quote(name), shlex.quote(twin)
            ways.append(
                f"if it is the same operator, '{command} {one} {two}'; if not, '{command} --drop {one} --add {two}'"
            )
    for name in gone:
        told.append(f"{name!r} ({before[name]}) is gone")
        flags.append(f"--drop {shlex.quote(name)}")
    for name in new:
        told.append(f"{name!r} ({now[name]}) is new")
        flags.append(f"--add {shlex.quote(name)}")
    for name in other:
        told.append(f"{name!r} was {before[name]} and is {now[name]}")
        flags.append(f"--drop {shlex.quote(name)} --add {shlex.quote(name)}")
    if flags:
        ways.append(
            f"'{command} {' '.join(flags)}' forgets what the checkpoint knows of what is dropped, and lets what is "
            "added begin empty"
        )
    return f"{'; '.join(told)}. To go on: {'; and '.join(ways)}"
