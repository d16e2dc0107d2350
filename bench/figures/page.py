"""`docs/papers.md`, written from what was found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from figures.figure import Claim, Figure, Found, Paper

_TOP = """\
# The papers' experiments

`penstock bench papers --docs` runs them and writes this page. Most are simulated, at the papers' sizes; what says
"for real" ran on two cores. A claim is what a paper says of its figure. "Beyond" is not the paper's: our defaults
on the same axes, against the best contestant of the figure.
"""


def page(seen: Sequence[tuple[Paper, Figure, Found]]) -> str:
    claims = [claim for _, _, found in seen for claim in found.claims]
    own = [claim for claim in claims if not claim.is_beyond]
    beyond = [claim for claim in claims if claim.is_beyond]
    parts = [_TOP, f"{_held(own)} of the papers' claims hold; {_held(beyond)} of ours beyond them.\n"]
    for paper, figures in groupby(seen, key=lambda one: one[0]):
        parts.append(f"## {paper.title}\n")
        for _, figure, found in figures:
            parts += [
                f"### {figure.name.replace('-', ' ').capitalize()}: {figure.title}\n",
                f"{figure.setting}\n",
                f"![{figure.title}](papers/{paper.name}-{figure.name}.png)\n",
                "| claim | paper | ours | holds |\n|---|---|---|---|\n" + "".join(map(_row, found.claims)),
                *(f"{claim.told}: {claim.reason}\n" for claim in found.claims if claim.reason),
            ]
    return "\n".join(parts)


def _held(claims: Sequence[Claim]) -> str:
    return f"{sum(claim.holds for claim in claims)} of {len(claims)}"


def _row(claim: Claim) -> str:
    told = f"Beyond: {claim.told}" if claim.is_beyond else claim.told
    cells = (told, claim.paper, claim.ours, "yes" if claim.holds else "**no**")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
