"""Every way to run a flow, as hypothesis draws it."""

from __future__ import annotations

from hypothesis import strategies as st

import penstock as ps
from penstock.clock import FakeClock
from penstock.runtime.policies import POLICIES
from penstock.runtime.step_times import Shuffle
from penstock.runtime.virtual import Virtual


class Drawn(ps.engines.Local):
    """A local engine that says how it was drawn, so that a failing example can be read."""

    def __init__(self, what: str, **options):
        super().__init__(**options)
        self._what = what

    def __repr__(self) -> str:
        return self._what


@st.composite
def teams(draw):
    return {
        "replicas": draw(st.integers(1, 4)),
        "helping": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "reorder": draw(st.sampled_from(["ring", "lock"])),
        "reorder_size": draw(st.sampled_from([1, 2, 5, 256])),
        "split": draw(st.sampled_from(["pull", "round-robin", "least-loaded"])),
        "keyed_queue": draw(st.sampled_from(["hybrid", "shared", "partitioned"])),
    }


@st.composite
def shuffled(draw):
    """One thread that plays several workers: a seed is an interleaving."""
    workers, seed = draw(st.integers(1, 4)), draw(st.integers(0, 2**32))
    options = {
        "policy": draw(st.sampled_from(sorted(POLICIES))),
        "queue_size": draw(st.sampled_from([1, 2, 7, 1000])),
        "fuse": draw(st.booleans()),
        **draw(teams()),
    }
    clock = FakeClock()
    return Drawn(
        f"shuffled({workers}, {seed}, {options})",
        driver=lambda _: Virtual(workers, clock, Shuffle(seed)),
        clock=clock,
        **options,
    )


@st.composite
def threaded(draw):
    options = {
        "threads": draw(st.integers(1, 8)),
        "threading": draw(st.sampled_from(["dynamic", "dedicated", "manual"])),
        "policy": draw(st.sampled_from(sorted(POLICIES))),
        "queue_size": draw(st.sampled_from([1, 5, 1000])),
        **draw(teams()),
    }
    return Drawn(f"Local({options})", **options)


sequential = st.sampled_from([ps.engines.Sequential(), ps.engines.Sequential(restart="every-wait")])
engines = st.one_of(sequential, shuffled(), shuffled(), threaded())
