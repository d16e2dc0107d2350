"""Numbers that find themselves, against the best fixed ones, which are found by trying them all in the same run.

penstock bench elastic [--only <part>] [--quick]

What is simulated says so, with its cores; what is real runs on the cores that there are. Topologies are those of
C-Stream, section 5.1; the word count is the one of Dhalion and DS2; the application in four operators is PRESPS's; the
words that are helped are Leron's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from elasticity.batches import batches
from elasticity.executors import cluster
from elasticity.helping import leron
from elasticity.overhead import overhead, spark_overhead
from elasticity.real_storms import real_storms
from elasticity.replicas import load, twitter, words
from elasticity.storms import storms
from elasticity.threads import real_threads, simulated_threads


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="penstock bench elastic", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and less certain")
    scale = 0.3 if "--quick" in arguments else 1.0
    parts: dict[str, Callable[[], None]] = {
        "threads": lambda: simulated_threads([12, 64, 176], 3.0 * scale),
        "real-threads": lambda: real_threads(5.0 * scale),
        "words": lambda: words(60.0 * scale),
        "load": lambda: load(600.0 * scale),
        "twitter": lambda: twitter(600.0 * scale),
        "leron": lambda: leron(6.0 * scale),
        "overhead": lambda: overhead(10.0 * scale),
        "spark-overhead": spark_overhead,
        "cluster": cluster,
        "batches": lambda: batches(max(300.0, 1200.0 * scale)),
        "storms": lambda: storms(options.cases if not scale < 1 else 12, options.seed),
        "real-storms": lambda: real_storms(min(20, options.cases), options.seed),
    }
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--cases", type=int, default=200, help="how many storms are drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the first storm")
    options = parser.parse_args(arguments)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    for name, part in parts.items():
        if options.only in (None, name):
            part()


if __name__ == "__main__":
    main(sys.argv[1:])
