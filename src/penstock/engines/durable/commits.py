"""How a batch becomes done, once: the manifest, then the output. Both engines that have checkpoints do it here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engines.durable.checkpoint import Checkpoint
from penstock.engines.durable.publish import Publisher
from penstock.engines.durable.steps import reached
from penstock.errors import CheckpointError
from penstock.flow.nodes import Graph
from penstock.state.chains import BucketId, SegmentChain
from penstock.state.files import Files
from penstock.state.manifests import Manifest, Outputs, manifest_name

_PUBLISHED = "published"


@dataclass(frozen=True)
class Published:
    """The last batch whose output is out, and what each sink keeps since."""

    batch: int
    lineage: str
    sinks: Mapping[str, Any]


class Commits:
    """The batches of one checkpoint: what they have done, and what is out."""

    def __init__(self, checkpoint: Checkpoint, graph: Graph) -> None:
        self._checkpoint = checkpoint
        self._before: Manifest | None = None
        self._is_out = True
        self._is_closed = False
        query = None if checkpoint.is_temporary else checkpoint.query
        self.publisher = Publisher(graph, checkpoint.files, query)

    def open(self) -> None:
        """At a start, before anything is read: see that the sinks are where the checkpoint has left them."""
        latest, published = self._checkpoint.latest, read_published(self._checkpoint.files)
        check_published(self._checkpoint.files, latest, published)
        self._is_out = latest is None or (published is not None and published.batch == latest.batch)
        if latest is not None and not self._is_out:
            self._check_formats(latest)
        self.publisher.open(latest, published.sinks if published is not None and self._is_out else {})
        if latest is not None:
            self.publisher.recollect(latest)
            if latest.closed and self._is_out:
                self._checkpoint.refuse_to_go_on()

    def _check_formats(self, latest: Manifest) -> None:
        """What is still to be published was made for certain sinks: they must be there."""
        now = self.publisher.formats()
        for name in latest.outputs:
            if now.get(name) != latest.formats.get(name):
                raise CheckpointError(
                    f"checkpoint {self._checkpoint.root!r}: the output of batch {latest.batch} is not out yet, because "
                    f"a run died, and it was made for the {latest.formats.get(name)} sink {name!r}, which this flow "
                    "has not; run the flow once more with its sinks as they were, and change them then"
                )

    def finish(self, session: Any = None) -> None:
        """What an earlier run has committed is to be seen, even if it died before that."""
        latest = self._checkpoint.latest
        if latest is not None and not self._is_out:
            self._publish(latest, session)
        if latest is not None and latest.closed:
            self._checkpoint.refuse_to_go_on()

    def commit(
        self,
        batch: int,
        offsets: Mapping[str, Any],
        chains: Mapping[BucketId, SegmentChain],
        outputs: Outputs,
        closed: bool,
        session: Any = None,
    ) -> Manifest:
        """Declare a batch done, and let its output be seen."""
        self._check_open()
        checkpoint = self._checkpoint
        before = checkpoint.latest
        manifest = checkpoint.commit(
            Manifest(
                batch,
                checkpoint.engine,
                checkpoint.query,
                checkpoint.operators,
                checkpoint.buckets,
                offsets,
                chains,
                outputs,
                self.publisher.collected({} if before is None else before.collected, outputs),
                self.publisher.kept(),
                self.publisher.formats(),
                closed,
            )
        )
        reached("manifest")
        self._publish(manifest, session)
        reached("published")
        return manifest

    def close(self, has_failed: bool) -> None:
        """The run is over, well or not."""
        self._is_closed = True
        self.publisher.close(has_failed)

    def _check_open(self) -> None:
        """Users' code in between may have been stuck for so long that the run has ended without it."""
        if self._is_closed:
            raise CheckpointError("the run was ended while it took a checkpoint, which is left as it was")

    def _publish(self, manifest: Manifest, session: Any) -> None:
        self.publisher.publish(manifest, session)
        self._check_open()
        write_published(self._checkpoint.files, manifest, self.publisher.kept())
        if self._before is not None:
            self.publisher.forget(self._before)
        self._before = manifest


def read_published(files: Files) -> Published | None:
    """The last batch whose output is out, where that is known."""
    try:
        return Published(**json.loads(files.unseal(_PUBLISHED).body))
    except FileNotFoundError:
        return None


def write_published(files: Files, manifest: Manifest, sinks: Mapping[str, Any]) -> None:
    """The output of a batch is out."""
    files.seal(_PUBLISHED, json.dumps(vars(Published(manifest.batch, manifest.lineage, sinks))).encode())


def check_published(files: Files, latest: Manifest | None, published: Published | None) -> None:
    """`CheckpointError` where a batch is out that the log does not know."""
    if published is None:
        return
    if latest is None or published.batch > latest.batch:
        raise files.missing(manifest_name(published.batch), "what the last batch has done")
    if published.batch == latest.batch and published.lineage != latest.lineage:
        raise CheckpointError(
            f"{files.path(_PUBLISHED)} and {files.path(manifest_name(latest.batch))} are of different copies of this "
            "checkpoint: restore all of its files from one copy, or start with a new checkpoint"
        )
