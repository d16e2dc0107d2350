"""The same tests on a Python without a GIL, where `PENSTOCK_FREE_THREADED` names one."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = [
    "tests/ordering",
    "tests/engines/test_replicas.py",
    "tests/engines/test_policies.py",
    "tests/engines/test_companions.py",
    "tests/properties/test_ordered.py",
    "tests/properties/test_flows.py",
]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_order_needs_no_gil():
    python = os.environ.get("PENSTOCK_FREE_THREADED")
    if python is None:
        pytest.skip("PENSTOCK_FREE_THREADED names no Python without a GIL")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHON_GIL": "0"}
    command = [python, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", *TESTS]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:]
