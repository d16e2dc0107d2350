"""What the tests of reliability share: inputs, what must come of them, and a table of figures at the end."""

from __future__ import annotations

import pytest

from tests.reliability import flows
from tests.reliability.figures import FIGURES
from tests.reliability.trials import Place


@pytest.fixture
def place(tmp_path):
    found = Place(tmp_path / "in", tmp_path / "work")
    flows.write_inputs(found.inputs)
    found.work.mkdir()
    return found


@pytest.fixture
def expected(place, tmp_path):
    return flows.sequential_outputs(place.inputs, tmp_path / "reference")


def pytest_terminal_summary(terminalreporter):
    if table := FIGURES.table():
        terminalreporter.section("figures of reliability")
        for line in table:
            terminalreporter.write_line(line)
