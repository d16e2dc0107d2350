"""A checkpoint that changes engines: the only code that writes states anew because their buckets are others."""

from __future__ import annotations

from dataclasses import replace

from penstock.engines.durable.checkpoint import Checkpoint
from penstock.engines.durable.commits import Commits
from penstock.engines.durable.keyed_states import KeyedStates, identity_in
from penstock.errors import CheckpointError
from penstock.flow.nodes import Graph, Reads
from penstock.operators.kept import Changed
from penstock.state.buckets import Cache, TaskStates

_NO_LIMIT = 1 << 62


def move(checkpoint: Checkpoint, commits: Commits, graph: Graph, buckets: int) -> None:
    """Let this engine go on with what another has left: all states in buckets of its own, in one manifest."""
    check_engine(checkpoint)
    check_sources(checkpoint, graph)
    latest = checkpoint.latest
    if latest is None or latest.engine == checkpoint.engine:
        return
    files, query = checkpoint.files, checkpoint.query
    chains = checkpoint.manifests.chains()
    known = {bucket_id.operator for bucket_id in chains}
    before, after = TaskStates(files, query, chains, Cache(0)), TaskStates(files, query, {}, Cache(_NO_LIMIT))
    for node in graph.nodes:
        if node.name in known:
            identity = identity_in(node)
            kept = KeyedStates(before, node.name, latest.buckets, identity=identity).kept()
            moved = KeyedStates(after, node.name, buckets, identity=identity)
            moved.keep(Changed(kept.by_key, rest=kept.rest))
    checkpoint.commit(
        replace(
            latest,
            batch=latest.batch + 1,
            engine=checkpoint.engine,
            operators=checkpoint.operators,
            buckets=buckets,
            chains=after.commit(),
            outputs={},
            sinks=commits.publisher.kept(),
        ),
        is_whole=True,
    )


def check_engine(checkpoint: Checkpoint) -> None:
    """A step's batches are numbered by a query that is not ours: nothing else goes on with them, nor it with others."""
    latest, step = checkpoint.latest, "spark step"
    if latest is not None and latest.engine != checkpoint.engine and step in (latest.engine, checkpoint.engine):
        raise CheckpointError(
            f"checkpoint {checkpoint.root!r} was made by {latest.engine!r}, and {checkpoint.engine!r} can't go on with "
            "it: the batches of a step are numbered by the query that calls it; give each a checkpoint of its own"
        )


def check_sources(checkpoint: Checkpoint, graph: Graph) -> None:
    """`CheckpointError` for sources that can't be read from where they were."""
    for node in graph.nodes:
        if isinstance(node.kind, Reads) and not node.kind.source.goes_on and any(_read(checkpoint, node.name)):
            raise CheckpointError(
                f"checkpoint {checkpoint.root!r}: source {node.name!r} ({node.where}) was read before, and it can only "
                "be read from its beginning, so its tuples would come twice; give a new checkpoint, or another source"
            )


def _read(checkpoint: Checkpoint, source: str) -> list[int]:
    offset = checkpoint.offsets.get(source, {})
    return list(offset.get("reached", offset).values())
