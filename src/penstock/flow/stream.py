"""Streams: the methods that add function operators, each one node of a core kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.connectors.sink import Sink
from penstock.errors import FlowError
from penstock.flow.checks import checked_function, name_of
from penstock.flow.nodes import Applies, Key, Kind, OnError, PortRef, Remembers
from penstock.operators.base import Operator
from penstock.operators.functions import Form
from penstock.operators.loops import Merge, Zip
from penstock.operators.state import constant_factory
from penstock.schema import Schema

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.flow.keyed import KeyedStream

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
K = TypeVar("K")


class Stream(Generic[T]):
    """An ordered sequence of tuples, as one output port of an operator gives it."""

    def __init__(self, flow: Flow, source: PortRef, schema: Schema | None = None) -> None:
        self.flow = flow
        self.source = source
        self.schema = schema

    def map(
        self,
        fn: Callable[[T], U],
        name: str | None = None,
        replicas: int | None = None,
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """`fn(value)` for each value."""
        kind = self._function(Form.MAP, fn, name)
        return Stream(self.flow, self._applied(kind, name, replicas, ordered, on_error))

    def filter(
        self,
        fn: Callable[[T], object],
        name: str | None = None,
        replicas: int | None = None,
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> Stream[T]:
        """The values for which `fn(value)` is true."""
        kind = self._function(Form.FILTER, fn, name)
        return Stream(self.flow, self._applied(kind, name, replicas, ordered, on_error), self.schema)

    def flat_map(
        self,
        fn: Callable[[T], Iterable[U]],
        name: str | None = None,
        replicas: int | None = None,
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """Everything that `fn(value)` returns or yields, in its order; all of it or, if `fn` raises, nothing."""
        kind = self._function(Form.FLAT_MAP, fn, name)
        return Stream(self.flow, self._applied(kind, name, replicas, ordered, on_error))

    def inspect(
        self,
        fn: Callable[[T], object],
        name: str | None = None,
        replicas: int | None = None,
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> Stream[T]:
        """The same values; `fn` sees each of them on its way."""
        kind = self._function(Form.INSPECT, fn, name)
        return Stream(self.flow, self._applied(kind, name, replicas, ordered, on_error), self.schema)

    def map_batch(
        self,
        fn: Callable[[list[T]], Iterable[U]],
        name: str | None = None,
        replicas: int | None = None,
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """A list in, a list out; the engine chooses how many values come at once, so don't depend on it."""
        kind = self._function(Form.BATCH, fn, name, "values")
        return Stream(self.flow, self._applied(kind, name, replicas, ordered, on_error))

    def map_arrow(
        self,
        fn: Callable[[Any], Any],
        schema: str,
        name: str | None = None,
        replicas: int | None = None,
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> Stream[dict[str, Any]]:
        """A `pyarrow.RecordBatch` in, one with the columns of `schema` out; values are rows (`dict`s)."""
        label = name or name_of(fn, "map_arrow")
        checked_function(label, "map_arrow's function", fn, "batch")
        parsed = Schema.parse(schema)
        kind = Applies(Form.ARROW, fn, schema=parsed, input_schema=self.schema)
        return Stream(self.flow, self._applied(kind, name, replicas, ordered, on_error), parsed)

    def map_async(
        self,
        fn: Callable[[T], Awaitable[U]],
        concurrency: int = 16,
        timeout: float | None = None,
        name: str | None = None,
        replicas: int | None = None,
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """`await fn(value)` for each value, up to `concurrency` of them at a time; results keep the order."""
        label = name or name_of(fn, "map_async")
        checked_function(label, "map_async's function", fn, "value")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise FlowError(f"operator {label!r}: concurrency= is a number from 1 up, not {concurrency!r}")
        if timeout is not None and timeout <= 0:
            raise FlowError(f"operator {label!r}: timeout= is a number of seconds above 0, not {timeout!r}")
        kind = Applies(Form.ASYNC, fn, concurrency=concurrency, timeout_seconds=timeout)
        return Stream(self.flow, self._applied(kind, name, replicas, ordered, on_error))

    def branch(
        self,
        predicate: Callable[[T], object],
        name: str | None = None,
        replicas: int | None = None,
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> tuple[Stream[T], Stream[T]]:
        """The values for which `predicate` is true, and the others."""
        kind = self._function(Form.BRANCH, predicate, name)
        source = self._applied(kind, name, replicas, ordered, on_error, outputs=2)
        others = PortRef(source.node, 1)
        return Stream(self.flow, source, self.schema), Stream(self.flow, others, self.schema)

    def scan(
        self,
        fn: Callable[[S, T], tuple[S, U]],
        init: Callable[[], S] | S,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """`fn(state, value)` returns the next state and an output; `init` is, or makes, the first state."""
        checked_function(name or name_of(fn, "scan"), "scan's function", fn, "state", "value")
        kind = Remembers(fn, constant_factory(init))
        return Stream(self.flow, self._attached(kind, name, name_of(fn, "scan"), on_error=on_error))

    def merge(self, *others: Stream[T], name: str | None = None) -> Stream[T]:
        """The values of all streams in the order in which they arrive; each stream keeps its own order."""
        merged = self.flow.add(Merge(1 + len(others)), self, *others, name=name or self._free("merge"))
        assert isinstance(merged, Stream)
        is_alike = all(other.schema == self.schema for other in others)
        return Stream(self.flow, merged.source, self.schema if is_alike else merged.schema)

    def zip(self, *others: Stream[Any], name: str | None = None) -> Stream[tuple[Any, ...]]:
        """One value of every stream together, as a tuple; ends with the shortest."""
        zipped = self.flow.add(Zip(1 + len(others)), self, *others, name=name or self._free("zip"))
        assert isinstance(zipped, Stream)
        return zipped

    @overload
    def key_by(self, key: Callable[[T], K]) -> KeyedStream[K, T]: ...

    @overload
    def key_by(self, key: str, *columns: str) -> KeyedStream[Any, T]: ...

    def key_by(self, key: Callable[[T], K] | str, *columns: str) -> KeyedStream[Any, T]:
        """Give each value a key: what a function says of it, or what stands in one or more columns."""
        from penstock.flow.keyed import KeyedStream

        if isinstance(key, str):
            return KeyedStream(self, self._column_key((key, *columns)))
        if columns:
            raise FlowError("key_by() takes one function, or the names of columns, not both")
        checked_function(name_of(key, "key_by"), "key_by's function", key, "value")
        return KeyedStream(self, Key(key))

    def write(self, sink: Sink, name: str | None = None, on_error: OnError = "fail") -> None:
        """End the stream in a sink."""
        self.flow._write(self, sink, name, on_error)

    def __rshift__(self, target: Operator | Sink) -> Any:
        """`stream >> operator` is `flow.add(operator, stream)`, and `stream >> sink` is `stream.write(sink)`."""
        if isinstance(target, Sink):
            self.write(target)
            return None
        if isinstance(target, Operator):
            return self.flow.add(target, self)
        raise FlowError(f"a stream goes into an operator or a sink, not into {target!r}")

    def __repr__(self) -> str:
        port = f"[{self.source.port}]" if self.source.port else ""
        return f"<Stream {self.source.node}{port} of flow {self.flow.name!r}>"

    def __iter__(self) -> Any:
        raise TypeError("a stream has no values before its flow runs; write it to ps.sinks.collect() and read .items")

    def _column_key(self, columns: tuple[str, ...]) -> Key:
        if self.schema is not None:
            for column in columns:
                if column not in self.schema.names:
                    raise FlowError(
                        f"key_by({column!r}): the stream {self.source.node!r} has no such column, "
                        f"only {', '.join(self.schema.names)}"
                    )
        return Key(ColumnKey(columns), columns)

    def _function(self, form: Form, fn: Callable[..., Any], name: str | None, parameter: str = "value") -> Applies:
        label = name or name_of(fn, form.value)
        checked_function(label, f"{form.value}'s function", fn, parameter)
        return Applies(form, fn)

    def _applied(
        self,
        kind: Applies,
        name: str | None,
        replicas: int | None,
        ordered: bool,
        on_error: OnError,
        outputs: int = 1,
    ) -> PortRef:
        made_from = name_of(kind.fn, kind.form.value)
        return self._attached(
            kind, name, made_from, outputs=outputs, replicas=replicas, ordered=ordered, on_error=on_error
        )

    def _attached(self, kind: Kind, name: str | None, made_from: str, outputs: int = 1, **options: Any) -> PortRef:
        node = self.flow._add(kind, name, made_from, inputs=(self.source,), outputs=outputs, **options)
        return PortRef(node.name)

    def _free(self, name: str) -> str:
        return self.flow._unique(None, name)


class ColumnKey:
    """The key that stands in columns: one value, or a tuple of several."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns

    def __call__(self, row: Any) -> Any:
        if len(self._columns) == 1:
            return row[self._columns[0]]
        return tuple(row[column] for column in self._columns)
