"""Engines leave nothing open behind them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


def open_things() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return {name for name in found if not name.startswith(("/proc", "/dev", "anon_inode"))}


@pytest.fixture(autouse=True)
def no_file_or_socket_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    before = open_things()
    yield
    left = open_things() - before
    if "spark" in request.node.name:  # the session lives on, and with it its connections to the JVM
        left = {name for name in left if not name.startswith(("socket", "pipe"))}
    assert left == set()
