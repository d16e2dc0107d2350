"""The experiments of the five papers that Penstock builds on: claim, paper, ours, and whether it holds.

penstock bench papers [c-stream|ordered|ibm|presps|leron ...] [--only FIGURE] [--fresh] [--docs]

Most of it is simulated at the papers' sizes; what two cores can show runs for real. Measured points are kept below
--results, and a run that was ended goes on with those that are missing; --fresh begins again. Plots go to --plots,
and --docs writes docs/papers.md from what is there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from figures import c_stream, ibm, leron, ordered, presps
from figures.drawing import draw
from figures.figure import Claim, Figure, Found, Paper
from figures.page import page
from figures.results import Results

PAPERS = {one.PAPER.name: one.PAPER for one in (c_stream, ordered, ibm, presps, leron)}
ROOT = Path(__file__).parents[1]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="penstock bench papers", description=__doc__)
    parser.add_argument("papers", nargs="*", metavar="paper", help=f"of {', '.join(PAPERS)}; all by default")
    parser.add_argument("--only", metavar="FIGURE", help="figure-4, table-1, …")
    parser.add_argument("--results", type=Path, default=ROOT / ".papers", help="where measured points are kept")
    parser.add_argument("--plots", type=Path, default=ROOT / "docs" / "papers")
    parser.add_argument("--fresh", action="store_true", help="measure again what has been measured")
    parser.add_argument("--docs", action="store_true", help="write docs/papers.md")
    options = parser.parse_args(arguments)
    if unknown := set(options.papers) - set(PAPERS):
        parser.error(f"there is no paper {', '.join(sorted(unknown))}; there are {', '.join(PAPERS)}")
    chosen = [PAPERS[name] for name in options.papers or PAPERS]
    known = sorted({figure.name for paper in chosen for figure in paper.figures})
    if options.only and options.only not in known:
        parser.error(f"there is no {options.only}; there are {', '.join(known)}")
    results, began = Results(options.results), time.perf_counter()
    seen: list[tuple[Paper, Figure, Found]] = []
    for paper, figure in _figures(chosen, options.only):
        if options.fresh:
            results.forget(paper.name, figure)
        print(f"\n{paper.name} {figure.name}: {figure.title}", flush=True)
        done = iter(range(1, len(figure.measures) + 1))
        found = figure.read(results.of(paper.name, figure, lambda name, seconds: _told(next(done), name, seconds)))
        title = f"{paper.title}, {figure.name.replace('-', ' ')}"
        draw(found, title, options.plots / f"{paper.name}-{figure.name}.png")
        for claim in found.claims:
            print(f"  {_mark(claim)}  {claim.told}\n         paper: {claim.paper}; ours: {claim.ours}", flush=True)
        seen.append((paper, figure, found))
    claims = [claim for _, _, found in seen for claim in found.claims if not claim.is_beyond]
    beyond = [claim for _, _, found in seen for claim in found.claims if claim.is_beyond]
    print(f"\n{_count(claims)} of the papers' claims hold, and {_count(beyond)} of ours beyond them")
    print(f"{time.perf_counter() - began:,.0f} seconds")
    if options.docs:
        (ROOT / "docs" / "papers.md").write_text(page(seen))


def _figures(papers: Sequence[Paper], only: str | None) -> Iterator[tuple[Paper, Figure]]:
    for paper in papers:
        for figure in paper.figures:
            if only in (None, figure.name):
                yield paper, figure


def _told(number: int, name: str, seconds: float) -> None:
    print(f"    {number:3} {name} ({seconds:.1f} s)", file=sys.stderr, flush=True)


def _mark(claim: Claim) -> str:
    return "holds" if claim.holds else "FAILS"


def _count(claims: Sequence[Claim]) -> str:
    return f"{sum(claim.holds for claim in claims)} of {len(claims)}"


if __name__ == "__main__":
    main(sys.argv[1:])
