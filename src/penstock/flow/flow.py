"""The flow itself: the only place where nodes are added and connected."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.sink import Sink
from penstock.connectors.source import Source
from penstock.errors import FlowError
from penstock.flow.checks import call_site, checked_name, checked_on_error, checked_replicas
from penstock.flow.draw import explain, to_mermaid, to_svg
from penstock.flow.nodes import DeadLetter, Graph, Kind, Loops, Node, OnError, PortRef, Reads, Writes
from penstock.flow.validate import sound_graph
from penstock.operators.base import Operator

if TYPE_CHECKING:
    from penstock.engines.base import Engine, Job
    from penstock.flow.keyed import KeyedStream
    from penstock.flow.stream import Stream
    from penstock.observe.report import Report

AtEnd = Literal["close", "keep"]


class Flow:
    """A graph of operators; building it runs nothing.

    >>> import penstock as ps
    >>> flow = ps.Flow("squares")
    >>> squares = ps.sinks.collect()
    >>> flow.read(ps.sources.items([1, 2, 3])).map(lambda x: x * x).write(squares)
    >>> report = flow.run("sequential")
    >>> squares.items
    [1, 4, 9]
    """

    def __init__(self, name: str) -> None:
        self.name = checked_name("flow", name)
        self._nodes: dict[str, Node] = {}

    # Building

    def read(self, source: Source, name: str | None = None, on_error: OnError = "fail") -> Stream[Any]:
        """Begin a stream; `on_error` says what becomes of input that can't be read."""
        from penstock.flow.stream import Stream

        if not isinstance(source, Source):
            raise FlowError(f"flow {self.name!r}: read() takes one of ps.sources, not {source!r}")
        node = self._add(Reads(source), name, source.name, inputs=(), outputs=1, on_error=on_error)
        return Stream(self, PortRef(node.name), source.schema)

    def add(
        self,
        operator: Operator,
        *streams: Stream[Any] | KeyedStream[Any, Any] | None,
        name: str | None = None,
        replicas: int | None = None,
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> Any:
        """Connect streams to a driver loop's inputs (and then to its control inputs); `None` leaves one for `connect`.

        Returns the stream of its output port, a tuple of streams where it has several, or `None` where it has none.
        """
        from penstock.flow.keyed import KeyedStream
        from penstock.flow.stream import Stream

        if not isinstance(operator, Operator):
            hint = f"{operator.__name__}()" if isinstance(operator, type) else "an instance of a ps.Operator subclass"
            raise FlowError(f"flow {self.name!r}: add() takes {hint}, not {operator!r}")
        made_from = type(operator).__name__
        label = repr(name or made_from)
        if type(operator).process is Operator.process:
            raise FlowError(
                f"operator {label}: {made_from} has no process method; write `async def process(self, ctx)`"
            )
        self._check_connections(label, operator, streams, on_error)
        keys = tuple(s.key for s in streams[: operator.inputs] if isinstance(s, KeyedStream))
        if operator.kind == "keyed" and len(keys) < operator.inputs:
            raise FlowError(
                f"operator {label}: {made_from} is keyed, so each of its inputs needs a key: use .key_by(…)"
            )
        refs = [None if stream is None else self._ref(label, stream) for stream in streams]
        controls = refs[operator.inputs :]
        node = self._add(
            Loops(operator, keys if operator.kind == "keyed" else ()),
            name,
            made_from,
            inputs=tuple(refs[: operator.inputs]),
            controls=(*controls, *[None] * (operator.controls - len(controls))),
            outputs=operator.outputs,
            replicas=replicas,
            ordered=ordered,
            on_error=on_error,
        )
        outputs = tuple(Stream[Any](self, PortRef(node.name, port)) for port in range(operator.outputs))
        return None if not outputs else outputs[0] if len(outputs) == 1 else outputs

    def connect(
        self,
        stream: Stream[Any] | KeyedStream[Any, Any],
        to: str,
        *,
        input: int | None = None,
        control: int | None = None,
    ) -> None:
        """Connect a stream to an input or a control input of an operator that was added before the stream was there."""
        node = self._nodes.get(to)
        if node is None:
            raise FlowError(f"flow {self.name!r} has no operator {to!r}; it has {', '.join(self._nodes)}")
        if (input is None) == (control is None):
            raise FlowError(f"operator {to!r}: connect() takes either input= or control=, the number of the port")
        what, port = ("input", input) if input is not None else ("control", control)
        ports = list(node.inputs if input is not None else node.controls)
        if port is None or not 0 <= port < len(ports):
            raise FlowError(
                f"operator {to!r} has no {what} {port}: it has {len(ports)}; say `{what}s = …` in its class for more"
            )
        if ports[port] is not None:
            raise FlowError(f"operator {to!r}: {what} {port} is connected already")
        ports[port] = self._ref(repr(to), stream)
        if input is not None:
            self._nodes[to] = dataclasses.replace(node, inputs=tuple(ports))
        else:
            self._nodes[to] = dataclasses.replace(node, controls=tuple(ports))

    def dead_letters(self, name: str) -> Stream[DeadLetter]:
        """The tuples that an operator with `on_error="dead-letter"` could not process, with the reason."""
        from penstock.flow.stream import Stream

        node = self._nodes.get(name)
        if node is None:
            raise FlowError(f"flow {self.name!r} has no operator {name!r}; it has {', '.join(self._nodes)}")
        if not node.has_dead_letters:
            raise FlowError(f"operator {name!r} has no dead letters: say on_error='dead-letter' when it is made")
        return Stream(self, PortRef(name, node.outputs))

    # Looking

    def validate(self) -> Graph:
        """The graph in an order in which it can run, or a `FlowError` that says what is wrong with it."""
        return sound_graph(self.name, self._nodes)

    def explain(self, engine: str | Engine | None = None) -> str:
        """What the flow does, operator by operator; with an engine, how that engine runs it."""
        graph = self.validate()
        if engine is None:
            return explain(graph)
        from penstock.engines import resolve

        return resolve(engine).explain(graph)

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        return to_mermaid(self.name, self._nodes.values())

    def _repr_svg_(self) -> str:
        return to_svg(self._nodes.values())

    def __repr__(self) -> str:
        return f"<Flow {self.name!r}: {len(self._nodes)} operators>"

    # Running

    def run(self, engine: str | Engine = "spark", *, at_end: AtEnd | None = None, **options: Any) -> Report:
        """Run to the end; Ctrl-C or SIGTERM let what is under way finish first, a second one does not."""
        from penstock.runtime.signals import Terminated, attended

        job = self.start(engine, at_end=at_end, **options)
        try:
            return attended(job, job.wait)
        except Terminated:
            raise SystemExit(Terminated.exit_code) from None

    def start(self, engine: str | Engine = "spark", *, at_end: AtEnd | None = None, **options: Any) -> Job:
        """Begin to run and return at once."""
        from penstock.engines import resolve
        from penstock.engines.base import stopped_at_exit

        if at_end not in (None, "close", "keep"):
            raise FlowError(f"at_end= is 'close' or 'keep', not {at_end!r}")
        return stopped_at_exit(resolve(engine, **options).start(self.validate(), at_end))

    # For streams

    def _add(
        self,
        kind: Kind,
        name: str | None,
        made_from: str,
        *,
        inputs: tuple[PortRef | None, ...],
        outputs: int,
        controls: tuple[PortRef | None, ...] = (),
        on_error: OnError = "fail",
        replicas: int | None = None,
        ordered: bool = True,
    ) -> Node:
        node = Node(
            self._unique(name, made_from),
            kind,
            inputs,
            controls,
            outputs,
            checked_on_error(name or made_from, on_error),
            call_site(),
            checked_replicas(name or made_from, replicas),
            ordered,
        )
        self._nodes[node.name] = node
        return node

    def _unique(self, name: str | None, made_from: str) -> str:
        if name is not None:
            checked_name("operator", name)
            if name in self._nodes:
                where = self._nodes[name].where
                raise FlowError(
                    f"flow {self.name!r} has two operators called {name!r}: rename one (the first: {where})"
                )
            return name
        candidate, number = made_from, 1
        while candidate in self._nodes:
            number += 1
            candidate = f"{made_from}-{number}"
        return candidate

    def _ref(self, label: str, stream: Any) -> PortRef:
        from penstock.flow.keyed import KeyedStream
        from penstock.flow.stream import Stream

        if isinstance(stream, KeyedStream):
            stream = stream.stream
        if not isinstance(stream, Stream):
            raise FlowError(f"operator {label}: an input is a stream, not {stream!r}")
        if stream.flow is not self:
            raise FlowError(
                f"operator {label}: its input {stream.source.node!r} belongs to flow {stream.flow.name!r}, "
                f"not to flow {self.name!r}; connect streams of one flow only"
            )
        return stream.source

    def _check_connections(self, label: str, operator: Operator, streams: tuple[Any, ...], on_error: OnError) -> None:
        made_from = type(operator).__name__
        least, most = operator.inputs, operator.inputs + operator.controls
        if len(streams) < least:
            missing = ", ".join(str(port) for port in range(len(streams), least))
            raise FlowError(
                f"operator {label}: {made_from} has {least} inputs and got {len(streams)} streams, so input {missing} "
                f"is not connected; give add() one stream for each"
            )
        if len(streams) > most:
            raise FlowError(
                f"operator {label}: {made_from} has {least} inputs and {operator.controls} control inputs, but got "
                f"{len(streams)} streams; say `inputs = {len(streams)}` in its class or give it fewer"
            )
        if on_error == "skip":
            raise FlowError(
                f"operator {label}: on_error='skip' does not fit a driver loop, which must handle its own errors: "
                "catch them in process(), or say on_error='dead-letter'"
            )
        if operator.kind not in ("sequential", "stateless", "keyed"):
            raise FlowError(f"operator {label}: kind is 'sequential', 'stateless' or 'keyed', not {operator.kind!r}")
        if operator.kind == "stateless" and (operator.inputs != 1 or operator.controls):
            raise FlowError(f"operator {label}: a stateless driver loop has one input and no control inputs")

    def _write(self, stream: Any, sink: Sink, name: str | None, on_error: OnError) -> None:
        if not isinstance(sink, Sink):
            raise FlowError(f"flow {self.name!r}: write() takes one of ps.sinks, not {sink!r}")
        label = repr(name or sink.name)
        self._add(Writes(sink), name, sink.name, inputs=(self._ref(label, stream),), outputs=0, on_error=on_error)
