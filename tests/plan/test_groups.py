"""Which operators run in the same tasks, at which level, and on which edges tuples change tasks."""

import pytest

import penstock as ps
from penstock.flow.nodes import PortRef, Reader
from penstock.plan.groups import Spread, interleaves, make_plan, needs_marks

CLICKS = [{"user": 1, "at": 2.0}]
UNSHOWN = "unshown"


class Echo(ps.Operator):
    """A driver loop that could run anywhere; subclasses say where it can't."""

    kind = "stateless"

    async def process(self, ctx):
        async for value in ctx.inputs[0]:
            await ctx.emit(value)


class Sequence(Echo):
    kind = "sequential"


class ByKey(Echo):
    kind = "keyed"


class WithLastWords(Echo):
    def finish(self, ctx):
        pass


class Steered(Echo):
    kind = "sequential"
    controls = 1


def at(click):
    return click["at"]


def user(click):
    return click["user"]


def source():
    """A flow's first stream; a sink beside it makes the flow sound, whatever else there is, and is not shown."""
    clicks = ps.Flow("flow").read(ps.sources.items(CLICKS), name="clicks")
    clicks.write(ps.sinks.null(), name=UNSHOWN)
    return clicks


def also(stream, name):
    """One more source of the same flow."""
    return stream.flow.read(ps.sources.items(CLICKS), name=name)


def counted(stream, name="count"):
    return stream.key_by(user).count(name=name)


def windowed(stream, name="window", on_error="fail", **options):
    return stream.key_by(user).window(ps.windows.tumbling(60, time=at, **options)).count(name=name, on_error=on_error)


def with_letters(stream, name):
    """Dead letters have to be read, or the flow is not sound."""
    stream.flow.dead_letters(name).write(ps.sinks.null(), name="letters")
    return stream


def plan_of(stream):
    return make_plan(stream.flow.validate())


def groups_of(stream):
    """The groups in words: level, spread and operators."""
    return [" ".join([str(one.level), one.spread.name, *shown(one.nodes)]) for one in plan_of(stream).groups]


def shown(nodes):
    return [node.name for node in nodes if node.name != UNSHOWN]


def edges_of(stream):
    """The edges in words: from which group to which, and what for which inputs."""
    return [
        f"{edge.start} -> {edge.target}: {edge.source.node} for {inputs_of(edge)}" for edge in plan_of(stream).edges
    ]


def inputs_of(edge):
    return " ".join(f"{reader.node}[{reader.port}]" for reader in edge.readers)


# Fusing


def test_what_works_on_any_part_of_a_stream_runs_where_the_stream_is_read():
    clicks = source()
    clicks.map(user, name="users").map_batch(list, name="batch").write(ps.sinks.null(), name="out")
    assert groups_of(clicks) == ["0 SPLITS clicks users batch out"]
    assert edges_of(clicks) == []


def test_each_source_has_tasks_of_its_own():
    clicks = source()
    also(clicks, "views").map(user, name="users")
    assert groups_of(clicks) == ["0 SPLITS clicks", "0 SPLITS views users"]


def test_a_keyed_function_is_behind_an_exchange_and_its_output_in_order_behind_another():
    clicks = source()
    counted(clicks).write(ps.sinks.null(), name="out")
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS count", "2 SLICES out"]
    assert edges_of(clicks) == ["0 -> 1: clicks for count[0]", "1 -> 2: count for out[0]"]


@pytest.mark.parametrize("form", ["map", "filter", "flat_map", "inspect"])
def test_functions_of_one_tuple_run_behind_a_keyed_function_in_its_tasks(form):
    clicks = source()
    getattr(counted(clicks), form)(list, name="next").write(ps.sinks.null(), name="out")
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS count next", "2 SLICES out"]


@pytest.mark.parametrize(
    "behind",
    [
        lambda counts: counts.map_batch(list, name="next"),
        lambda counts: counts.branch(bool, name="next")[0],
        lambda counts: counts.flow.add(Echo(), counts, name="next"),
    ],
    ids=["map_batch", "branch", "driver loop"],
)
def test_what_needs_more_than_one_tuple_at_a_time_waits_until_they_are_in_order(behind):
    clicks = source()
    behind(counted(clicks))
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS count", "2 SLICES next"]


def test_a_line_behind_a_keyed_function_has_an_end():
    """Each function may be a loop in a loop, and Python nests no more than twenty blocks."""
    clicks = source()
    stream = counted(clicks)
    for number in range(10):
        stream = stream.map(list, name=f"m{number}")
    keyed, behind = groups_of(clicks)[1:]
    assert (len(keyed.split()), len(behind.split())) == (2 + 8, 2 + 3)


def test_only_the_next_in_line_stays_with_a_keyed_function():
    """What two operators read has to be in order for one of them; for both it is gathered once."""
    clicks = source()
    counts = counted(clicks)
    counts.map(list, name="one")
    counts.map(list, name="two")
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS count", "2 SLICES one two"]
    assert edges_of(clicks)[1:] == ["1 -> 2: count for one[0] two[0]"]


def test_functions_behind_a_window_run_where_its_results_are_in_order():
    clicks = source()
    windowed(clicks).map(list, name="next")
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS window", "2 SLICES next"]


def test_a_keyed_function_reads_another_by_its_own_keys_without_order_in_between():
    clicks = source()
    counted(counted(clicks, "first"), "second")
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS first", "2 KEYS second"]
    assert edges_of(clicks)[1:] == ["1 -> 2: first for second[0]"]


# One task


def test_what_sees_all_tuples_in_one_sequence_runs_in_one_task_and_stays_there():
    clicks = source()
    summed = clicks.scan(max, 0, name="sum")
    summed.scan(max, 0, name="again").map(abs, name="next").write(ps.sinks.null(), name="out")
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 ONE sum again next out"]
    assert edges_of(clicks) == ["0 -> 1: clicks for sum[0]"]


def test_streams_meet_in_one_task():
    clicks = source()
    views = also(clicks, "views")
    clicks.zip(views, name="pairs")
    clicks.merge(views, name="both")
    assert groups_of(clicks) == ["0 SPLITS clicks", "0 SPLITS views", "1 ONE pairs", "1 ONE both"]
    assert edges_of(clicks) == [
        "0 -> 2: clicks for pairs[0]",
        "0 -> 3: clicks for both[0]",
        "1 -> 2: views for pairs[1]",
        "1 -> 3: views for both[1]",
    ]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (Echo(), ["0 SPLITS clicks loop"]),
        (Sequence(), ["0 SPLITS clicks", "1 ONE loop"]),
        (WithLastWords(), ["0 SPLITS clicks", "1 ONE loop"]),
    ],
    ids=["stateless", "sequential", "with last words"],
)
def test_a_driver_loop_runs_anywhere_if_no_part_of_the_stream_is_different(operator, expected):
    clicks = source()
    clicks.flow.add(operator, clicks, name="loop")
    assert groups_of(clicks) == expected


def test_a_keyed_driver_loop_runs_by_key():
    clicks = source()
    clicks.flow.add(ByKey(), clicks.key_by(user), name="loop")
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS loop"]


def test_all_between_two_control_inputs_is_one_task():
    clicks = source()
    steered = clicks.flow.add(Steered(), clicks.map(dict, name="before"), None, name="steered")
    answers = counted(steered)
    clicks.flow.connect(answers, "steered", control=0)
    answers.map(list, name="behind")
    assert groups_of(clicks) == ["0 SPLITS clicks before", "1 ONE steered count behind"]
    assert edges_of(clicks) == ["0 -> 1: before for steered[0]"]


# Event time


def test_a_window_behind_a_keyed_function_gets_whole_slices():
    """Only what sees slices whole can tell how far the watermark is, so a group without operators restores order."""
    clicks = source()
    windowed(counted(clicks))
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS count", "2 SLICES", "3 KEYS window"]
    assert edges_of(clicks) == [
        "0 -> 1: clicks for count[0]",
        "1 -> 2: count for ",
        "2 -> 3: count for window[0]",
    ]


def test_a_group_that_restores_order_does_so_for_all():
    clicks = source()
    counts = counted(clicks)
    windowed(counts, "one")
    windowed(counts, "two")
    counts.map_batch(list, name="batch")
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS count", "2 SLICES batch", "3 KEYS one", "3 KEYS two"]


def test_each_side_of_a_join_is_an_edge_even_where_both_are_one_stream():
    clicks = source()
    clicks.key_by(user).join(clicks.key_by(user), within=5, time=at, name="pairs")
    assert groups_of(clicks) == ["0 SPLITS clicks", "1 KEYS pairs"]
    assert edges_of(clicks) == ["0 -> 1: clicks for pairs[0]", "0 -> 1: clicks for pairs[1]"]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (windowed, True),
        (lambda clicks: counted(clicks, "window"), False),
        (lambda clicks: clicks.key_by(user).stateful_map(max, init=int, ttl=5, name="window"), False),
        (lambda clicks: clicks.key_by(user).stateful_map(max, init=int, ttl=5, time=at, name="window"), True),
        (lambda clicks: clicks.key_by(user).join(clicks.key_by(user), within=5, time=at, name="window"), False),
        (
            lambda clicks: clicks.key_by(user).join(clicks.key_by(user), within=5, time=at, lateness=1, name="window"),
            True,
        ),
    ],
    ids=["window", "count", "ttl by the clock", "ttl in event time", "join", "join with lateness"],
)
def test_what_needs_to_know_the_watermark(build, expected):
    clicks = source()
    build(clicks)
    assert needs_marks(plan_of(clicks).node("window")) is expected


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (windowed, False),
        (lambda clicks: with_letters(windowed(clicks, on_late="dead-letter"), "window"), False),
        (lambda clicks: with_letters(windowed(clicks, on_error="dead-letter"), "window"), True),
        (lambda clicks: clicks.key_by(user).join(clicks.key_by(user), within=5, time=at, name="window"), False),
        (
            lambda clicks: clicks.key_by(user).join(clicks.key_by(user), within=5, time=at, how="left", name="window"),
            True,
        ),
    ],
    ids=["window", "late tuples", "dead letters", "inner join", "left join"],
)
def test_what_gives_outputs_from_timers_among_those_from_tuples(build, expected):
    clicks = source()
    build(clicks)
    assert interleaves(plan_of(clicks).node("window")) is expected


# The plan as a value


def test_dead_letters_leave_by_a_port_of_their_own():
    clicks = source()
    counts = clicks.key_by(user).stateful_map(max, init=int, name="count", on_error="dead-letter")
    counts.write(ps.sinks.null(), name="out")
    with_letters(counts, "count")
    plan = plan_of(clicks)
    out, letters = plan.edges[1:]
    assert (out.source, out.readers) == (PortRef("count", 0), (Reader("out", 0),))
    assert (letters.source, letters.readers) == (PortRef("count", 1), (Reader("letters", 0),))
    assert out.target != letters.target


def test_a_level_is_as_deep_as_the_longest_way_to_it():
    clicks = source()
    clicks.zip(counted(clicks).map_batch(list, name="batch"), name="pairs")
    plan = plan_of(clicks)
    assert [[group.number for group in level] for level in plan.levels] == [[0], [1], [2], [3]]
    assert plan.group_of("pairs").spread is Spread.ONE


def test_edges_are_found_from_both_of_their_ends():
    clicks = source()
    counts = counted(clicks)
    counts.write(ps.sinks.null(), name="out")
    plan = plan_of(clicks)
    keyed = plan.group_of("count")
    assert [edge.source.node for edge in plan.into(keyed)] == ["clicks"]
    assert [edge.source.node for edge in plan.out_of(keyed)] == ["count"]
    assert [edge.number for edge in plan.edges] == list(range(len(plan.edges)))


def test_the_same_flow_gives_the_same_plan():
    """Tasks of a later run read what those of an earlier one have kept."""
    assert groups_of(windowed(counted(source()))) == groups_of(windowed(counted(source())))
    assert edges_of(windowed(counted(source()))) == edges_of(windowed(counted(source())))
