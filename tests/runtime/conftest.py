"""Runs that are left when a test ends, however it ends."""

import pytest

from tests.runtime.runs import Runs


@pytest.fixture
def fed():
    runs = Runs()
    yield runs
    runs.leave()
