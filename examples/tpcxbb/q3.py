"""TPCx-BB Q3: for each item of some categories, the 30 items that were viewed most often before it was bought online.

Clicks are (1) filtered by category; (2) each purchase is told with its user's last five views in the ten days before,
and (3) these are counted by purchased item and week.

penstock generate tpcxbb --scale 0.1 tpcxbb
penstock run examples/tpcxbb/q3.py:make_flow
"""

from collections import Counter
from typing import NamedTuple

from tables import DAY, Row, categories, click_time, web_clickstreams

import penstock as ps

CATEGORIES = (2, 3)
VIEWS = 5
WITHIN = 10 * DAY
MOST = 30


class View(NamedTuple):
    item: int
    time: int


class ViewBefore(NamedTuple):
    """An item was viewed before another one was bought."""

    bought: int
    viewed: int
    time: int


def views_before(views: tuple[View, ...], click: Row) -> tuple[tuple[View, ...], list[ViewBefore]]:
    item, time = click["wcs_item_sk"], click_time(click)
    if click["wcs_sales_sk"] is None:
        return (*views, View(item, time))[-VIEWS:], []
    return views, [ViewBefore(item, view.item, time) for view in views if time - view.time <= WITHIN]


def count_viewed(counts: Counter[int], one: ViewBefore) -> Counter[int]:
    counts[one.viewed] += 1
    return counts


def most_viewed(counts: Counter[int]) -> list[tuple[int, int]]:
    """Items with their counts, the largest first; of equal ones, the smaller item."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST]


def query(flow: ps.Flow, data: str) -> ps.Stream[ps.WindowResult]:
    category = categories(data)

    def is_wanted(click: Row) -> bool:
        return click["wcs_user_sk"] is not None and category.get(click["wcs_item_sk"]) in CATEGORIES

    users = web_clickstreams(flow, data).filter(is_wanted).key_by("wcs_user_sk")
    before = users.stateful_flat_map(views_before, init=tuple, ttl=WITHIN, time=click_time)
    weeks = ps.windows.tumbling(7 * DAY, time=lambda one: one.time)
    per_week = before.key_by(lambda one: one.bought).window(weeks)
    return per_week.aggregate(Counter, count_viewed, most_viewed, name="per_week")


def make_flow(data: str = "tpcxbb") -> ps.Flow:
    flow = ps.Flow("tpcxbb-q3")
    query(flow, data).write(ps.sinks.console())
    return flow
