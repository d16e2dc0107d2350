"""What the queries share: the tables that `penstock generate tpcxbb` writes, and the best of a window.

The queries are those of TPCx-BB that "Scaling Ordered Stream Processing" (Table 1) runs as streams, with its pipelines.
"""

import csv
import heapq
from pathlib import Path
from typing import Any

import penstock as ps

Row = dict[str, Any]

HOUR = 3_600
DAY = 24 * HOUR

CLICKS = (
    "wcs_click_date_sk long, wcs_click_time_sk long, wcs_user_sk long, wcs_item_sk long, wcs_sales_sk long, "
    "wp_type string"
)
SALES = (
    "ss_sold_date_sk long, ss_sold_time_sk long, ss_store_sk long, ss_ticket_number long, ss_item_sk long, "
    "ss_net_paid decimal(7,2)"
)


def web_clickstreams(flow: ps.Flow, data: str) -> ps.Stream[Row]:
    """Every click in the online shop, in the order of time."""
    return flow.read(ps.sources.csv(Path(data, "web_clickstreams"), schema=CLICKS), name="web_clickstreams")


def store_sales(flow: ps.Flow, data: str) -> ps.Stream[Row]:
    """Every line of every ticket of the stores, in the order of time."""
    return flow.read(ps.sources.csv(Path(data, "store_sales"), schema=SALES), name="store_sales")


def categories(data: str) -> dict[int, int]:
    """The category of each item."""
    found: dict[int, int] = {}
    for path in sorted(Path(data, "item").glob("part-*")):
        with path.open(newline="") as file:
            found |= {int(row["i_item_sk"]): int(row["i_category_id"]) for row in csv.DictReader(file)}
    return found


def click_time(click: Row) -> int:
    """In seconds since 1970."""
    return int(click["wcs_click_date_sk"] * DAY + click["wcs_click_time_sk"])


def sale_time(sale: Row) -> int:
    """In seconds since 1970."""
    return int(sale["ss_sold_date_sk"] * DAY + sale["ss_sold_time_sk"])


class Top(ps.Operator):
    """The largest counts of each window, once it is over; of equal ones, those with the smaller keys."""

    def __init__(self, most: int, at_least: int = 1) -> None:
        self.most = most
        self.at_least = at_least

    async def process(self, ctx: Any) -> None:
        counts = ctx.state.setdefault("counts", [])  # of the window that is not over
        while await ctx.wait_all():
            result = ctx.inputs[0].pop()
            if counts and counts[0].end < result.end:
                await self.emit_best(ctx, counts)
                counts.clear()
            if result.value >= self.at_least:
                counts.append(result)
        await self.emit_best(ctx, counts)

    async def emit_best(self, ctx: Any, counts: list[ps.WindowResult]) -> None:
        for result in heapq.nsmallest(self.most, counts, key=lambda one: (-one.value, one.key)):
            await ctx.emit(result)
