"""Executors that come and go with the load, on a standalone cluster."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path


def cluster() -> None:
    """What the long test on a standalone cluster asserts, to be read: executors, and the output compared."""
    print("\nA step in load on a standalone cluster of two workers")
    root = Path(__file__).parents[2]
    sys.path.insert(0, str(root))
    from tests.spark.cluster import standalone_cluster

    with tempfile.TemporaryDirectory() as folder, standalone_cluster(Path(folder)) as running:
        command = [sys.executable, "-m", "tests.spark.cluster_script", running.master, "step", folder]
        told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    for line in told.stdout.splitlines():
        print(f"  {line}")
