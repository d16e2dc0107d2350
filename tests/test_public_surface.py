"""The public names, as the contract lists them: adding one is a line here, renaming one is a break."""

import inspect

import pytest

import penstock as ps

STREAM = [
    "map",
    "filter",
    "flat_map",
    "map_batch",
    "map_arrow",
    "map_async",
    "inspect",
    "scan",
    "branch",
    "merge",
    "zip",
    "key_by",
    "write",
    "__rshift__",
]
KEYED = ["stateful_map", "stateful_flat_map", "reduce", "count", "dedupe", "window", "join"]
FLOW = ["read", "add", "run", "start", "explain", "to_mermaid", "dead_letters", "connect", "validate", "_repr_svg_"]


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (
            ps.controllers,
            ["Bottleneck", "Demand", "Figure7", "Helping", "Predictive", "Trend", "Utilisation"],
        ),
        (
            ps,
            [
                "Flow",
                "Stream",
                "KeyedStream",
                "Operator",
                "DeadLetter",
                "Report",
                "WindowResult",
                "sources",
                "sinks",
                "windows",
                "engines",
            ],
        ),
        (ps, ["Source", "Split", "Chunk", "Unreadable", "Sink", "SinkWriter", "Rejected", "Delivery"]),
        (ps.Source, ["splits", "read", "cut", "settled", "identity", "changed", "on_change", "bounded", "replayable"]),
        (ps.Sink, ["open", "delivery", "any_thread"]),
        (ps.SinkWriter, ["write", "flush", "close", "abandon"]),
        (
            ps,
            [
                "PenstockError",
                "FlowError",
                "OperatorError",
                "SourceError",
                "SinkError",
                "CheckpointError",
                "ConservationError",
                "PolicyError",
            ],
        ),
        (ps, ["Elastic", "Controller", "Change", "Signals"]),
        (ps.Controller, ["name", "see", "decide"]),
        (ps.Flow, FLOW),
        (ps.Stream, STREAM),
        (ps.KeyedStream, KEYED),
        (ps.sources, ["items", "csv", "json", "parquet", "text", "generate", "socket", "spark"]),
        (ps.sinks, ["collect", "csv", "json", "parquet", "text", "call", "console", "null", "spark"]),
        (ps.windows, ["tumbling", "sliding", "session"]),
        (ps.engines, ["Sequential"]),
        (ps.Operator, ["inputs", "outputs", "controls", "kind", "process", "start", "finish"]),
        (ps.engines.Job, ["wait", "stop", "metrics", "rescale", "set_policy", "threads"]),
    ],
)
def test_names_are_there(owner, names):
    assert [name for name in names if not hasattr(owner, name)] == []


def test_all_is_what_can_be_imported():
    assert sorted(ps.__all__) == ps.__all__
    assert [name for name in ps.__all__ if not hasattr(ps, name)] == []


def test_every_method_of_a_stream_takes_a_name():
    for owner, names in ((ps.Stream, STREAM), (ps.KeyedStream, KEYED)):
        for name in names:
            if name not in ("key_by", "window", "__rshift__"):
                assert "name" in inspect.signature(getattr(owner, name)).parameters, name


def test_stateless_methods_take_replicas_and_ordered():
    for name in ["map", "filter", "flat_map", "map_batch", "map_arrow", "map_async", "inspect", "branch"]:
        parameters = inspect.signature(getattr(ps.Stream, name)).parameters
        assert {"replicas", "ordered", "on_error"} <= set(parameters), name


def test_errors_form_one_tree():
    for name in ["FlowError", "OperatorError", "SourceError", "SinkError", "CheckpointError"]:
        assert issubclass(getattr(ps, name), ps.PenstockError)


def test_everything_public_has_a_docstring():
    for owner in (ps.Flow, ps.Stream, ps.KeyedStream, ps.sources, ps.sinks, ps.windows, ps.engines.Job, ps.Operator):
        for name, member in vars(owner).items():
            if not name.startswith("_") and inspect.isfunction(member):
                assert member.__doc__, f"{owner.__name__}.{name}"
