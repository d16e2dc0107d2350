"""The only code that asks Spark for executors and gives them back: what dynamic allocation does not do for streams."""

from __future__ import annotations

from functools import cached_property
from typing import Any


class SparkExecutors:
    """The executors of one Spark, where its master lets them be changed."""

    def __init__(self, spark: Any) -> None:
        self._python = spark.sparkContext
        self._spark = spark.sparkContext._jsc.sc()
        self._jvm = spark.sparkContext._jvm
        self._is_local = self._python.master.startswith("local") and "-cluster" not in self._python.master

    def why_fixed(self) -> str | None:
        """Why their number can't be changed from here; `None` if it can."""
        if self._is_local:
            return f"the master {self._python.master!r} has one process, and no executors beside it"
        if self._conf("spark.dynamicAllocation.enabled", "false") == "true":
            return "spark.dynamicAllocation.enabled leaves their number to Spark"
        return None

    @cached_property
    def slots_each(self) -> int:
        """How many tasks one of them can run at once."""
        return max(1, int(self._conf("spark.executor.cores", "1")) // int(self._conf("spark.task.cpus", "1")))

    def slots(self) -> int:
        """How many tasks can run at once now."""
        if self._is_local:
            count: int = self._python.defaultParallelism
            return count
        return max(1, len(self.alive())) * self.slots_each

    @property
    def most_slots(self) -> int | None:
        """How many tasks could run at once with all the cores that this application may have, where it says so."""
        cores = int(self._conf("spark.cores.max", "0"))
        return cores // int(self._conf("spark.task.cpus", "1")) or None

    def alive(self) -> list[str]:
        """The ids of those that have registered, the oldest first."""
        found = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(self._spark.getExecutorIds())
        return sorted((str(one) for one in found), key=int)

    def is_idle(self) -> bool:
        """Whether no task runs anywhere."""
        return not any(info.numRunningTasks() for info in self._spark.statusTracker().getExecutorInfos())

    def request(self, total: int) -> bool:
        """Ask for so many altogether; they come by themselves. Whether the master has heard it."""
        none = self._jvm.PythonUtils.toScalaMap(self._jvm.java.util.HashMap())
        return bool(self._spark.requestTotalExecutors(total, 0, none))

    def release(self, total: int) -> list[str]:
        """Give back all but so many, the youngest first, unless a task runs; the ids of those that go."""
        going = self.alive()[total:]
        if not going or not self.is_idle():
            return []
        self.request(total)
        ids = self._jvm.java.util.ArrayList()
        for one in going:
            ids.add(one)
        self._spark.killExecutors(self._jvm.PythonUtils.toSeq(ids))
        return going

    def _conf(self, name: str, default: str) -> str:
        # Not `getConf`, which copies all settings one by one.
        return str(self._spark.conf().get(name, default))
