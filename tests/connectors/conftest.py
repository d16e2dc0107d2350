"""What the tests of connectors share."""

from __future__ import annotations

import pytest

from penstock.connectors.files import lines


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read 16 bytes at a time, so that a few lines are many blocks."""
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 16)


@pytest.fixture(params=[16, 1 << 20])
def any_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs with tiny blocks and with large ones."""
    monkeypatch.setattr(lines, "_BLOCK_BYTES", request.param)
