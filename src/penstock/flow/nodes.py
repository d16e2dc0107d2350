"""The only description of a flow that engines see: nodes of a few kinds, and the ports that connect them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from penstock.connectors.sink import Sink
from penstock.connectors.source import Source
from penstock.operators.base import Operator
from penstock.operators.functions import Form
from penstock.operators.timed import TimedLogic
from penstock.operators.times import Span, Time
from penstock.operators.windows import OnLate
from penstock.schema import Schema

OnError = Literal["fail", "skip", "dead-letter"]


@dataclass(frozen=True)
class CallSite:
    """Where in the user's code something was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Key:
    """How a tuple's key is found: by a function, or by columns, which Spark can read without Python."""

    fn: Callable[[Any], Any]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reads:
    """A source."""

    source: Source


@dataclass(frozen=True)
class Applies:
    """A stateless function; any number of workers may run it at once."""

    form: Form
    fn: Callable[..., Any]
    schema: Schema | None = None
    """Of what `map_arrow` returns."""
    input_schema: Schema | None = None
    concurrency: int = 1
    timeout_seconds: float | None = None


@dataclass(frozen=True)
class Remembers:
    """A function of a state and a value, with a state for each key, or a single one where `key` is `None`."""

    fn: Callable[[Any, Any], tuple[Any, Any]]
    init: Callable[[], Any]
    key: Key | None = None
    many: bool = False
    """Whether the function returns several outputs."""
    with_key: bool = False
    """Whether the output is `(key, output)`."""
    ttl: Span | None = None
    time: Callable[[Any], Time] | None = None
    """What `ttl` is measured by: event time, or the engine's clock where this is `None`."""


@dataclass(frozen=True)
class Waits:
    """Keyed logic in event time, with a watermark for each input: windows and joins."""

    logic: TimedLogic
    keys: tuple[Key, ...]
    times: tuple[Callable[[Any], Time], ...]
    lateness: Span | None
    on_late: OnLate


@dataclass(frozen=True)
class Loops:
    """A driver loop."""

    operator: Operator
    keys: tuple[Key, ...] = ()
    """One for each input of a keyed operator."""


@dataclass(frozen=True)
class Writes:
    """A sink."""

    sink: Sink


Kind = Reads | Applies | Remembers | Waits | Loops | Writes


@dataclass(frozen=True)
class PortRef:
    """An output port of a node: where a stream comes from."""

    node: str
    port: int = 0


@dataclass(frozen=True)
class Node:
    """One operator of a flow."""

    name: str
    kind: Kind
    inputs: tuple[PortRef | None, ...]
    """Where each input comes from; `None` only while the flow is being built, like `controls`."""
    controls: tuple[PortRef | None, ...]
    outputs: int
    """How many ports it has besides the one for dead letters, whose number is `outputs`."""
    on_error: OnError
    where: CallSite
    replicas: int | None = None
    ordered: bool = True

    @property
    def upstream(self) -> tuple[PortRef, ...]:
        """Everything connected to it: its inputs, then its control inputs."""
        return (*connected(self.inputs), *connected(self.controls))

    @property
    def has_dead_letters(self) -> bool:
        late = isinstance(self.kind, Waits) and self.kind.on_late == "dead-letter"
        return late or self.on_error == "dead-letter"


def connected(refs: Iterable[PortRef | None]) -> tuple[PortRef, ...]:
    return tuple(ref for ref in refs if ref is not None)


class DeadLetter(NamedTuple):
    """A tuple that an operator could not process, and why (`TypeName: message`)."""

    operator: str
    value: Any
    error: str


@dataclass(frozen=True)
class Reader:
    """An input port of a node; control inputs are counted after the inputs."""

    node: str
    port: int


@dataclass(frozen=True)
class Graph:
    """A flow that was found sound: its nodes, each after everything it reads (control inputs aside)."""

    flow: str
    nodes: tuple[Node, ...]

    @cached_property
    def readers(self) -> dict[PortRef, list[Reader]]:
        """The readers of each output port."""
        found: dict[PortRef, list[Reader]] = {}
        for node in self.nodes:
            for port, ref in enumerate((*node.inputs, *node.controls)):
                if ref is not None:
                    found.setdefault(ref, []).append(Reader(node.name, port))
        return found

    @property
    def sources(self) -> tuple[Node, ...]:
        """Where tuples come from: sources, and driver loops without inputs."""
        return tuple(node for node in self.nodes if not node.inputs)

    def sources_of(self, ref: PortRef) -> set[str]:
        """The sources that a stream comes from."""
        upstream = {node.name: node.upstream for node in self.nodes}
        found, left = set(), [ref.node]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += [before.node for before in upstream[name]]
        return {node.name for node in self.sources if node.name in found}
