"""Which cells a run has, while they come and go."""

import pytest

import penstock as ps
from tests.runtime.runs import NoWorkers


def registry(fed, workers=None):
    run = fed(
        lambda s: s.map(lambda x: x, name="a").key_by(lambda x: x).count(name="b").write(ps.sinks.null(), name="out"),
        workers=workers,
    )
    return run, run.registry


def test_every_operator_has_a_cell(fed):
    _, cells = registry(fed)
    assert cells.cell_of("a") is cells.cell_of("b"), "one loop"
    assert cells.cell_of("out") is cells.cells[-1]
    assert list(cells.counts()) == ["in", "a", "b", "out"]
    with pytest.raises(ps.FlowError, match="flow 'fed' has no operator 'c'"):
        cells.cell_of("c")


def test_a_cell_that_is_cut_off_comes_behind_the_one_it_was_cut_off(fed):
    workers = NoWorkers()
    run, cells = registry(fed, workers)
    run.open()
    chain, before = cells.cell_of("a"), cells.cells
    place = cells.place_after(chain)
    assert chain.place < place < cells.cell_of("out").place
    chain.stand_alone([node for node in chain.nodes if node.name == "b"])
    workers.told.clear()
    chain.has_changed()
    rest = cells.cell_of("b")
    assert rest.place == place
    assert [cell.name for cell in cells.cells] == ["in", "a", "b", "out"]
    assert len(before) == 3, "those who look at the cells meanwhile see the old ones"
    assert workers.told[0] == "new cells"


def test_the_run_is_over_with_its_last_cell(fed):
    workers = NoWorkers()
    run, cells = registry(fed, workers)
    run.open()
    completes = [cells.completed(cell) for cell in reversed(cells.cells)]
    assert completes == [False, False, True]
