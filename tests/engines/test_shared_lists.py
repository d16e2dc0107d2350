"""A list that users' code is given is its own: other readers of the stream see nothing of what is done with it."""

import threading

import pytest

import penstock as ps

ENGINES = {
    "sequential": ps.engines.Sequential,
    "two threads": lambda: ps.engines.Local(threads=2),
    "replicas": lambda: ps.engines.Local(threads=2, replicas=3, queue_size=7),
    "dedicated": lambda: ps.engines.Local(threading="dedicated"),
}


def reverses(values):
    values.reverse()
    return values


def empties(values):
    out = []
    while values:
        out.append(values.pop(0))
    return out


def grows(values):
    values.append(5)
    return []


class Empties(ps.Sink, ps.SinkWriter):
    def open(self):
        return self

    def write(self, values):
        empties(values)


class Refills(ps.Source):
    """Gives the same list again and again."""

    name = "refills"
    counts_rows = True

    def splits(self):
        return [ps.Split("a", 0, 50), ps.Split("a", 50, 100)]

    def read(self, split, clock):
        values = []
        for start in range(split.start, split.end, 10):
            values[:] = range(start, start + 10)
            yield ps.Chunk(values, start + 10)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fn", [reverses, empties, grows])
def test_functions_of_lists(engine, fn):
    flow = ps.Flow("shared")
    numbers = flow.read(ps.sources.items(range(100))).map(lambda x: x)
    seen, others = ps.sinks.collect(), ps.sinks.collect()
    numbers.map_batch(fn).write(ps.sinks.null())
    numbers.write(Empties())
    numbers.write(seen)
    numbers.map_batch(list).write(others)
    flow.run(ENGINES[engine]())
    assert seen.items == others.items == list(range(100))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_source_that_fills_one_list_again(engine):
    flow = ps.Flow("refilled")
    seen = ps.sinks.collect()
    flow.read(Refills()).write(seen)
    flow.run(ENGINES[engine]())
    assert seen.items == list(range(100))


@pytest.mark.parametrize("engine", ENGINES)
def test_positions_of_a_source_of_one_s_own_need_not_count_tuples(engine):
    class Words(ps.Source):
        name = "words"

        def splits(self):
            return [ps.Split("a", 0, 6)]

        def read(self, split, clock):
            for word, end in (("abc", 3), ("de", 5), ("f", 6)):
                yield ps.Chunk([word], end)

    flow = ps.Flow("words")
    seen = ps.sinks.collect()
    flow.read(Words()).write(seen)
    flow.run(ENGINES[engine]())
    assert seen.items == ["abc", "de", "f"]


def test_threads_may_change_before_everything_is_open():
    may_open = threading.Event()

    class Slow(ps.Sink, ps.SinkWriter):
        def open(self):
            may_open.wait(10)
            return self

        def write(self, values):
            pass

    flow = ps.Flow("early")
    flow.read(ps.sources.items(range(10))).write(Slow())
    job = flow.start(ps.engines.Local(threads=2))
    job.threads = 4
    may_open.set()
    job.wait(timeout=10)
    assert job.threads == 4


def test_one_list_is_not_written_by_two_streams():
    flow = ps.Flow("twice")
    both = ps.sinks.collect()
    numbers = flow.read(ps.sources.items([1, 2, 3]))
    numbers.write(both)
    numbers.map(lambda x: -x).write(both)
    with pytest.raises(ps.FlowError, match="both write to"):
        flow.run("sequential")
