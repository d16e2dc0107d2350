"""Options of the local engine that decide how work is cut and shared out, and what reports say of latency."""

import threading

import pytest

import penstock as ps
from penstock.testing import shuffled

WORDS = [f"{'abc'[number % 3]}-{number % 50}" for number in range(2000)]


def counted(engine, build):
    flow, result = ps.Flow("counts"), ps.sinks.collect()
    build(flow, flow.read(ps.sources.items(WORDS)).key_by(lambda word: word)).write(result)
    flow.run(engine)
    return result.items


class LastWords(ps.Operator):
    kind = "keyed"

    async def process(self, ctx):
        async for _ in ctx.inputs[0]:
            ctx.state["count"] = ctx.state.get("count", 0) + 1
        await ctx.emit((ctx.key, ctx.state["count"]))


def windowed(flow, keyed):
    return keyed.window(ps.windows.tumbling(100, lambda word: 7)).count(name="keyed")


KEYED = {
    "function": lambda flow, keyed: keyed.count(name="keyed"),
    "loop": lambda flow, keyed: flow.add(LastWords(), keyed, name="keyed"),
    "window": windowed,
    "ttl": lambda flow, keyed: keyed.stateful_map(lambda count, word: (count + 1, (word, count)), init=int, ttl=3600.0),
}


@pytest.mark.parametrize("kind", KEYED)
@pytest.mark.parametrize("options", [{"buckets": 1}, {"buckets": 3}, {"partitioner": len}, {"partitioner": hash}])
def test_buckets_and_partitioners_change_no_result(kind, options):
    expected = counted(ps.engines.Sequential(), KEYED[kind])
    for seed in range(3):
        assert counted(shuffled(seed, replicas=3, **options), KEYED[kind]) == expected


@pytest.mark.parametrize("kind", ["function", "loop", "window"])
def test_a_state_goes_on_where_the_partitioner_puts_its_key(kind):
    """One that gets replicas while the flow runs shares out the states that it has."""
    asked, has_started = set(), threading.Event()

    def by_letter(key):
        asked.add(key)
        return "abc".index(key[0])

    def rescaling(words):
        assert has_started.wait(30)
        if not asked:
            job.rescale("keyed", 3)
        return words

    expected = counted(ps.engines.Sequential(), KEYED[kind])
    flow, result = ps.Flow("counts"), ps.sinks.collect()
    stream = flow.read(ps.sources.items(WORDS)).map_batch(rescaling)
    out = KEYED[kind](flow, stream.key_by(lambda word: word))
    out.write(result)
    job = flow.start(ps.engines.Local(threads=2, buckets=2, partitioner=by_letter, queue_size=50))
    has_started.set()
    job.wait(timeout=60)
    assert result.items == expected
    assert len(asked) == 150


@pytest.mark.parametrize("kind", ["function", "loop", "window"])
@pytest.mark.parametrize("partitioner", [lambda key: {}[key], lambda key: key])
def test_a_partitioner_that_fails_ends_the_run(kind, partitioner):
    with pytest.raises(ps.PolicyError, match=r"partitioner= failed on key 'a-0' of operator .*(KeyError|TypeError)"):
        counted(shuffled(1, replicas=3, partitioner=partitioner), KEYED[kind])


@pytest.mark.parametrize("engine", [ps.engines.Local, ps.engines.Simulated])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": 0}, "buckets= is a number from 1 up, not 0"),
        ({"partitioner": 3}, "partitioner= is a function from a key to a number, not 3"),
        ({"slice_seconds": 0}, "slice_seconds= is a number of seconds above 0, not 0"),
    ],
)
def test_wrong_options(engine, options, message):
    with pytest.raises(ps.FlowError, match=message):
        engine(**options)


def test_a_slice_is_how_long_a_function_keeps_a_worker():
    def longest(slice_seconds):
        sizes = []
        flow = ps.Flow("slices")
        stream = flow.read(ps.sources.items(range(3000)))
        stream.map_batch(lambda xs: sizes.append(len(xs)) or xs, name="work").write(ps.sinks.null())
        flow.run(ps.engines.Simulated(costs={"work": 1e-4}, slice_seconds=slice_seconds))
        return max(sizes[3:]) * 1e-4

    assert 0.0005 <= longest(0.001) <= 0.005
    assert 0.02 <= longest(0.02) <= 0.09


def test_processing_latency_leaves_out_the_wait_in_the_source_queue():
    """All come at once, and each takes ten milliseconds: the last one waits for a second, and is worked on for ten."""
    flow = ps.Flow("latency")
    stream = flow.read(ps.sources.items(range(100)))
    stream.map_batch(lambda xs: xs, name="work").write(ps.sinks.null())
    engine = ps.engines.Simulated(costs={"work": 0.01}, queue_size=200)
    latency = flow.run(engine).latency
    assert latency.p99 == pytest.approx(1.0, rel=0.1)
    assert latency.mean == pytest.approx(0.5, rel=0.3)
    assert latency.processing_p50 == pytest.approx(0.01, rel=0.1)
    assert latency.processing_p50 <= latency.processing_p99 < 0.2
    assert latency.processing_mean < 0.1 * latency.mean
