"""What of a flow a checkpoint depends on, and what to do where that has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.errors import shown_command
from penstock.flow.nodes import Graph, Key, Loops, Node, Reads, Remembers, Waits
from penstock.operators.state import Reducing, counting, first_only

NEW = "new"
"""Stands for an operator that was declared to begin empty, before the flow has said what it is."""


def fingerprint(graph: Graph) -> dict[str, str]:
    """The sources, and the operators with state: what each is, as far as what it has kept depends on that."""
    return {node.name: told for node in graph.nodes if (told := _described(node))}


def _described(node: Node) -> str:
    match node.kind:
        case Reads(source=source):
            return f"source {type(source).__name__}"
        case Remembers(key=None):
            return "state by no key"
        case Remembers(key=Key() as key):
            return f"{_form(node.kind)} {_by([key])}{_forgetting(node.kind)}"
        case Waits(logic=logic, keys=keys):
            return f"{logic.told} {_by(keys)}"
        case Loops(operator=operator, keys=keys) if operator.kind != "stateless":
            by = f" {_by(keys)}" if keys else ""
            return f"driver loop {type(operator).__name__} with {len(node.inputs)} inputs{by}"
    return ""


def _by(keys: Sequence[Key]) -> str:
    return "by key " + " and ".join(", ".join(key.columns) or "function" for key in keys)


def _form(kind: Remembers) -> str:
    if kind.fn is counting:
        return "running count"
    if kind.fn is first_only:
        return "first of each"
    return "running reduction" if isinstance(kind.fn, Reducing) else "state"


def _forgetting(kind: Remembers) -> str:
    if kind.ttl is None:
        return ""
    return ", with a ttl by the clock" if kind.time is None else ", with a ttl in event time"


def changes_to_tell(root: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has changed, and the commands that let the flow go on; nothing where nothing has.

    >>> print(changes_to_tell("here", {"count": "state by key user"}, {"counted": "state by key user"}))
    'counted' (state by key user) has the place of 'count'. To go on: if it is the same operator,
    `penstock checkpoint rename here count counted`; if not, `penstock checkpoint rename here --drop count --add
    counted`
    """
    gone = [name for name in before if name not in now]
    new = [name for name in now if name not in before]
    other = [name for name in now if name in before and before[name] not in (now[name], NEW)]
    if not (gone or new or other):
        return ""

    def command(*words: str) -> str:
        return shown_command("penstock", "checkpoint", "rename", root, *words)

    told, ways, flags = [], [], list[str]()
    for name in gone[:]:
        twin = next((one for one in new if now[one] == before[name]), None)
        if twin is not None:
            gone.remove(name)
            new.remove(twin)
            told.append(f"{twin!r} ({now[twin]}) has the place of {name!r}")
            other_one = command("--drop", name, "--add", twin)
            ways.append(f"if it is the same operator, {command(name, twin)}; if not, {other_one}")
    for name in gone:
        told.append(f"{name!r} ({before[name]}) is gone")
        flags += ["--drop", name]
    for name in new:
        told.append(f"{name!r} ({now[name]}) is new")
        flags += ["--add", name]
    for name in other:
        told.append(f"{name!r} was {before[name]} and is {now[name]}")
        flags += ["--drop", name, "--add", name]
    if flags:
        ways.append(
            f"{command(*flags)} forgets what the checkpoint knows of what is dropped, and lets what is added begin "
            "empty"
        )
    return f"{'; '.join(told)}. To go on: {'; and '.join(ways)}"
