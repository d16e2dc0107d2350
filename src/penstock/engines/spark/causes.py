"""What ends a batch outside of its operators, in words of what to do about it: dead workers, interpreters, modules."""

from __future__ import annotations

import re
import sys
from typing import Any

from penstock.connectors.spark_session import log_hint
from penstock.connectors.spark_words import reason_of, text_of
from penstock.engines.spark.pickling import pickled
from penstock.errors import FlowError, PenstockError
from penstock.plan.groups import Plan

_DEATHS = ("Python worker exited unexpectedly", "Python worker crashed")
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_OTHER_VERSION = re.compile(r"PYTHON_VERSION_MISMATCH\].*?version:? ([\d.]+) than that in driver:? ([\d.]+)", re.DOTALL)
_OURS = ("penstock", "pyspark", "pyarrow", "pandas", "numpy", "cloudpickle", "msgspec")


def is_death(text: str) -> bool:
    """Whether Spark says that a Python worker has died."""
    return any(sign in text for sign in _DEATHS)


def told_by_spark(error: BaseException, plan: Plan, spark: Any) -> PenstockError:
    """What has ended a batch, in words of what the user can do about it."""
    flow, text = plan.graph.flow, text_of(error)
    python = getattr(spark.sparkContext, "pythonExec", "python3")
    advice = f"set PYSPARK_PYTHON to an interpreter like this one ({sys.executable})"
    if found := _OTHER_VERSION.search(text):
        there, here = found.groups()
        return FlowError(
            f"flow {flow!r}: Spark's workers run Python {there} ({python}), and this process {here}; {advice}"
        )
    if found := _NO_PROGRAM.search(text):
        return FlowError(f"flow {flow!r}: Spark's workers can't start Python: there is no {found[1]!r}; {advice}")
    if found := _NO_MODULE.search(text):
        return FlowError(f"flow {flow!r}: {_missing(found[1], plan, python, advice)}")
    if is_death(text):
        told = (
            f"flow {flow!r}: a Python worker of Spark's died again and again, and never where one could see what it did"
        )
        return PenstockError(f"{told}: {reason_of(error)}{log_hint()}")
    return PenstockError(f"flow {flow!r}: Spark failed: {reason_of(error)}{log_hint()}")


def _missing(module: str, plan: Plan, python: str, advice: str) -> str:
    root = module.partition(".")[0]
    if root in _OURS:
        return f"the interpreter of Spark's workers, {python}, has no {root}; {advice}, or install penstock there"
    users = [node.name for node in plan.graph.nodes if root.encode() in pickled(node, plan.graph.flow)]
    whose = f"operator {users[0]!r} needs" if len(users) == 1 else f"the operators {', '.join(users)} need"
    whose = whose if users else "a function needs"
    return (
        f"{whose} the module {module!r}, which Spark's workers ({python}) don't have; install it there, or send it "
        "with spark.submit.pyFiles"
    )
