"""Everything that can be wrong with a graph: found before it runs, named, with a way to mend it."""

import pytest

import penstock as ps


class Barrier(ps.Operator):
    inputs = 2

    async def process(self, ctx):
        pass


class Controlled(ps.Operator):
    controls = 1

    async def process(self, ctx):
        pass


class Keyed(ps.Operator):
    kind = "keyed"

    async def process(self, ctx):
        pass


@pytest.fixture
def flow():
    return ps.Flow("clicks")


@pytest.fixture
def stream(flow):
    return flow.read(ps.sources.items([]))


def refused(message):
    return pytest.raises(ps.FlowError, match=message)


def test_an_input_left_unconnected(flow, stream):
    with refused(r"'pairs': Barrier has 2 inputs and got 1 streams, so input 1 is not connected"):
        flow.add(Barrier(), stream, name="pairs")


def test_an_input_left_for_later_and_forgotten(flow, stream):
    flow.add(Barrier(), stream, None, name="pairs").write(ps.sinks.null())
    with refused(r"'pairs': input 1 is not connected; .*flow.connect\(stream, 'pairs', input=1\)"):
        flow.validate()


def test_a_control_input_left_unconnected(flow, stream):
    flow.add(Controlled(), stream, name="throttle").write(ps.sinks.null())
    with refused("'throttle': control 0 is not connected"):
        flow.validate()


def test_too_many_streams(flow, stream):
    with refused("Barrier has 2 inputs and 0 control inputs, but got 3 streams"):
        flow.add(Barrier(), stream, stream, stream)


def test_a_stream_of_another_flow(flow):
    other = ps.Flow("views").read(ps.sources.items([]), name="views")
    with refused("'pairs': its input 'views' belongs to flow 'views', not to flow 'clicks'"):
        flow.add(Barrier(), other, other, name="pairs")


def test_two_operators_with_one_name(flow, stream):
    stream.map(str, name="parse")
    with refused(r"two operators called 'parse': rename one \(the first: .*test_flow_errors.py:\d+\)"):
        stream.map(int, name="parse")


def test_names_that_are_not_given_never_collide(flow, stream):
    stream.map(str).map(str).map(str).write(ps.sinks.null())
    assert [node.name for node in flow.validate().nodes] == ["items", "str", "str-2", "str-3", "null"]


def test_a_cycle_that_does_not_go_through_a_control_input(flow, stream):
    pairs = flow.add(Barrier(), stream, None, name="pairs")
    flow.connect(pairs.map(str, name="back"), "pairs", input=1)
    pairs.write(ps.sinks.null())
    with refused("a cycle: (pairs -> back -> pairs|back -> pairs -> back). Only a control input may lead back"):
        flow.validate()


def test_an_operator_that_reads_itself(flow, stream):
    pairs = flow.add(Barrier(), stream, None, name="pairs")
    flow.connect(pairs, "pairs", input=1)
    pairs.write(ps.sinks.null())
    with refused("a cycle: pairs -> pairs"):
        flow.validate()


def test_a_flow_without_a_sink(flow, stream):
    stream.map(str, name="parse")
    with refused("'clicks' has no sink, so nothing would come of it: end 'parse' with .write"):
        flow.run("sequential")


def test_an_empty_flow(flow):
    with refused("'clicks' is empty"):
        flow.run("sequential")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.map(lambda: 1, name="m"), r"'m': map's function is called with 1 argument \(value\)"),
        (
            lambda s: s.map(lambda a, b: 1, name="m"),
            r"'m': map's function .*but <lambda>\(a, b\) can't be \(defined at",
        ),
        (lambda s: s.filter(None, name="f"), r"'f': filter's function must be a function of \(value\), not None"),
        (lambda s: s.scan(lambda a: a, init=0, name="s"), r"'s': scan's function .*2 arguments \(state, value\)"),
        (lambda s: s.key_by(lambda: 1), "key_by's function"),
        (lambda s: s.key_by("a").stateful_map(len, init=int, name="k"), "'k': stateful_map's function"),
        (lambda s: s.key_by("a").reduce(lambda a: a, name="r"), "'r': reduce's function"),
        (
            lambda s: s.key_by("a").window(ps.windows.tumbling(1, time=lambda: 1)).count(name="w"),
            "'w': time= is called with 1 argument",
        ),
        (
            lambda s: s.key_by("a").window(ps.windows.tumbling(1, time=len)).aggregate(int, len, name="w"),
            "'w': add= is called with 2 arguments",
        ),
        (lambda s: s.map_async(lambda: 1, name="a"), "'a': map_async's function"),
    ],
)
def test_a_function_with_the_wrong_number_of_parameters(stream, build, message):
    with refused(message):
        build(stream)


@pytest.mark.parametrize("function", [str, len, print, "{}".format, lambda x, y=2: x, lambda *args: args, dict.get])
def test_functions_that_can_be_called_are_accepted(stream, function):
    if function is not dict.get:
        stream.map(function)
    else:
        stream.scan(function, init=dict)


@pytest.mark.parametrize(
    "schema", ["user lnog", "user", "user long page string", "", "a long, a string", "a array<long"]
)
def test_a_schema_that_does_not_parse(schema):
    with refused("does not parse"):
        ps.sources.csv("clicks.csv", schema=schema)
    with refused("does not parse"):
        ps.sinks.parquet("out", schema=schema)
    with refused("does not parse"):
        ps.Flow("f").read(ps.sources.items([])).map_arrow(lambda b: b, schema=schema)


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", "a\nb", "x" * 200, 7, " a"])
def test_names_that_cannot_be_file_names(stream, name):
    with refused("name"):
        stream.map(str, name=name)
    with refused("name"):
        ps.Flow(name)


def test_dead_letters_that_nobody_reads(flow, stream):
    stream.map(int, on_error="dead-letter").write(ps.sinks.null())
    with refused(r"'int' sends dead letters that no operator reads: .*flow.dead_letters\('int'\)"):
        flow.validate()


def test_dead_letters_of_an_operator_that_has_none(flow, stream):
    stream.map(int)
    with refused("'int' has no dead letters: say on_error='dead-letter'"):
        flow.dead_letters("int")
    with refused("has no operator 'float'; it has items, int"):
        flow.dead_letters("float")


def test_skip_is_refused_on_driver_loops(flow, stream):
    with refused("'Barrier': on_error='skip' does not fit a driver loop"):
        flow.add(Barrier(), stream, stream, on_error="skip")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.map(str, on_error="ignore"), "on_error= is 'fail', 'skip' or 'dead-letter', not 'ignore'"),
        (lambda s: s.map(str, replicas=0), "replicas= is a number from 1 up"),
        (lambda s: s.map(str, replicas=1.5), "replicas= is a number from 1 up"),
        (lambda s: s.map_async(str, concurrency=0), "concurrency= is a number from 1 up"),
        (lambda s: s.map_async(str, timeout=-1), "timeout= is a number of seconds above 0"),
        (lambda s: s.key_by(str, "column"), "one function, or the names of columns"),
        (lambda s: s.key_by("a").window(60), "window\\(\\) takes one of ps.windows"),
        (lambda s: s.key_by("a").join(s, within=1, time=len), "join\\(\\) takes another keyed stream"),
        (lambda s: s.key_by("a").join(s.key_by("a"), within=-1, time=len), "within=-1 is less than 0"),
        (lambda s: s.write("out"), "write\\(\\) takes one of ps.sinks"),
        (lambda s: s >> len, "a stream goes into an operator or a sink"),
        (lambda s: s.flow.read([1, 2]), "read\\(\\) takes one of ps.sources"),
        (lambda s: s.flow.add(Barrier, s, s), "add\\(\\) takes Barrier\\(\\), not"),
        (lambda s: s.flow.add(ps.Operator(), s), "Operator has no process method"),
        (lambda s: s.flow.add(Keyed(), s), "Keyed is keyed, so each of its inputs needs a key"),
        (lambda s: s.flow.add(Barrier(), s, 7), "an input is a stream, not 7"),
        (lambda s: s.flow.connect(s, "nowhere", input=0), "has no operator 'nowhere'"),
        (lambda s: s.flow.connect(s, "items"), "either input= or control="),
        (lambda s: s.flow.connect(s, "items", control=0), "'items' has no control 0: it has 0"),
    ],
)
def test_wrong_arguments(stream, build, message):
    with refused(message):
        build(stream)


def test_connecting_twice(flow, stream):
    flow.add(Barrier(), stream, stream, name="pairs")
    with refused("'pairs': input 0 is connected already"):
        flow.connect(stream, "pairs", input=0)


def test_a_column_that_is_not_there(flow):
    rows = flow.read(ps.sources.csv("clicks.csv", schema="user long, page string"))
    with refused(r"key_by\('usr'\): the stream 'bool' has no such column, only user, page"):
        rows.filter(bool).key_by("usr")


def test_a_stream_cannot_be_iterated(stream):
    with pytest.raises(TypeError, match=r"ps.sinks.collect\(\)"):
        list(stream)


def test_building_runs_nothing_and_touches_no_file(flow):
    rows = flow.read(ps.sources.csv("/nowhere/*.csv", schema="user long"))
    rows.map(lambda row: 1 / 0).write(ps.sinks.json("/nowhere/out"))
    flow.validate()
    flow.explain()
    flow.to_mermaid()
