"""What users may decide about a run is one thing, whether its workers are real or virtual."""

import inspect

import pytest

import penstock as ps
from penstock.clock import FakeClock
from penstock.engines.live_job import LiveJob
from penstock.engines.live_meter import Gauge
from penstock.engines.local import RealThreads
from penstock.engines.options import RuntimeOptions
from penstock.runtime.step_times import Shuffle
from penstock.runtime.virtual import Virtual
from tests.spark.flows import FLOWS, outputs

ENGINES = {"local": ps.engines.Local, "simulated": ps.engines.Simulated}
REFUSED = {"checkpoint", "clock", "driver"}
"""By the simulated engine."""


def defaults(function):
    found = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in found if one.default is not inspect.Parameter.empty}


def test_both_engines_have_the_same_options():
    """What `Local` is given and a run on virtual cores can't have is refused; everything else works there as well."""
    given = defaults(ps.engines.Local.__init__)
    for option, value in given.items():
        if option in REFUSED:
            with pytest.raises(ps.FlowError, match=f"^engine 'simulated': there is no {option}= in a simulation$"):
                ps.engines.Simulated(**{option: value})
        else:
            assert ps.engines.Simulated(**{option: value}).name == "simulated"
    assert {option: given[option] for option in defaults(RuntimeOptions)} == defaults(RuntimeOptions)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("threads", 0, "threads= is a number from 1 up or 'auto', not 0"),
        ("threads", True, "threads= is a number from 1 up or 'auto', not True"),
        ("threading", "own", "threading= is 'dynamic', 'dedicated' or 'manual', not 'own'"),
        ("queue_size", 0, "1 <= queue_size <= queue_limit must hold, not 0, 1048576"),
        ("queue_limit", 5, "1 <= queue_size <= queue_limit must hold, not 16384, 5"),
        ("replicas", 0, "replicas= is a number from 1 up, not 0"),
        ("reorder_size", 1.5, "reorder_size= is a number from 1 up, not 1.5"),
        ("helping", 1.1, "helping= is a share from 0 to 1, not 1.1"),
        ("workers", "fibres", "workers= is one of 'threads', 'processes', not 'fibres'"),
        ("reorder", "heap", "reorder= is one of 'ring', 'lock', not 'heap'"),
        ("split", "hash", "split= is one of 'pull', 'round-robin', 'least-loaded', not 'hash'"),
        ("keyed_queue", "one", "keyed_queue= is one of 'hybrid', 'shared', 'partitioned', not 'one'"),
        ("quantum", 0, "quantum= is a number of seconds above 0, not 0"),
        ("slice_seconds", 0, "slice_seconds= is a number of seconds above 0, not 0"),
        ("buckets", 0, "buckets= is a number from 1 up, not 0"),
        ("partitioner", 3, "partitioner= is a function from a key to a number, not 3"),
        ("policy", "best", "there is no policy 'best'"),
    ],
)
def test_both_refuse_the_same_in_the_same_words(engine, option, value, words):
    with pytest.raises(ps.FlowError) as refused:
        ENGINES[engine](**{option: value})
    assert words in str(refused.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_option_that_there_is_not_is_told(engine):
    flow = ps.Flow("wrong")
    flow.read(ps.sources.items([1])).write(ps.sinks.null())
    with pytest.raises(ps.FlowError, match=f"^engine '{engine}': .* unexpected keyword argument 'speed'"):
        flow.run(engine, speed=3)


def test_a_simulation_is_no_local_engine():
    assert not issubclass(ps.engines.Simulated, ps.engines.Local)


@pytest.mark.parametrize("engine", ENGINES)
def test_both_explain_which_operators_are_one_loop(engine):
    flow = ps.Flow("explained")
    numbers = flow.read(ps.sources.items([1]), name="in")
    numbers.map(lambda x: x, name="a").map(lambda x: x, name="b").write(ps.sinks.null(), name="out")
    graph = flow.validate()
    together = ENGINES[engine](threads=3).explain(graph)
    assert "runs on 3 threads; operators on one line are one loop:\n  in\n  a + b\n  out" in together
    apart = ENGINES[engine](threading="dedicated").explain(graph)
    assert "runs on a thread for each line; operators on one line are one loop:\n  in\n  a\n  b\n  out" in apart


def test_elasticity_is_found_where_nothing_is_said():
    assert RuntimeOptions().elasticity(by_default=True) == ps.Elastic()
    assert RuntimeOptions().elasticity(by_default=False) is None
    assert RuntimeOptions(elastic=False).elasticity(by_default=True) is None
    assert RuntimeOptions(elastic=True).elasticity(by_default=False) == ps.Elastic()
    assert RuntimeOptions(threading="manual", elastic=True).elasticity(by_default=True) is None
    fixed = RuntimeOptions(threading="dedicated", elastic=True).elasticity(by_default=True)
    assert fixed is not None
    assert fixed.threads == "fixed"


class Counted(RealThreads):
    """A platform of a test's own: one thread that plays three workers, and says what it was asked for."""

    def __init__(self, asked):
        clock = FakeClock()
        super().__init__(clock, Virtual(3, clock, Shuffle(1)), lambda: Gauge(3, lambda: 0.0, False))
        object.__setattr__(self, "asked", asked)

    def charged(self, graph):
        self.asked.append("charged")
        return super().charged(graph)

    def begin(self, run):
        self.asked.append("begin")
        assert run.cells
        assert not run.ending.is_over

    def report(self, run, engine):
        self.asked.append("report")
        assert run.ending.is_over
        return super().report(run, engine)


def test_a_job_runs_on_whatever_platform_it_is_given():
    asked = []

    class OnCounted(ps.engines.Local):
        def platform(self, flow):
            return Counted(asked)

    for name, flow in list(FLOWS.items())[:3]:
        assert outputs(flow, 30, OnCounted(queue_size=4)) == outputs(flow, 30, ps.engines.Sequential()), name
    assert asked[:3] == ["charged", "begin", "report"]


def test_a_job_that_can_not_be_built_leaves_its_checkpoint(tmp_path):
    """Nobody holds it any more, so that the next run can have it."""

    class Broken(ps.engines.Local):
        is_broken = True

        def platform(self, flow):
            platform = super().platform(flow)
            if self.is_broken:
                object.__setattr__(platform, "charged", lambda graph: 1 / 0)
            return platform

    kept = ps.sinks.collect()
    flow = ps.Flow("kept")
    flow.read(ps.sources.items([1, 2, 3]), name="in").write(kept, name="out")
    graph, engine = flow.validate(), Broken(checkpoint=tmp_path / "checkpoint")
    with pytest.raises(ZeroDivisionError):
        engine.start(graph)
    engine.is_broken = False
    job = engine.start(graph, at_end="close")
    assert isinstance(job, LiveJob)
    job.wait(timeout=60)
    assert kept.items == [1, 2, 3]


def test_an_option_that_there_is_not_is_told_by_the_engines_name():
    with pytest.raises(TypeError, match=r"Simulated\(\) got an unexpected keyword argument 'nonsense'"):
        ps.engines.Simulated(cores=2, nonsense=1)
