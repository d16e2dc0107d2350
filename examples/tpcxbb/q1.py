"""TPCx-BB Q1: the 100 pairs of items that some stores have sold together most often, hour by hour.

Sales are (1) filtered by store and category, (2) paired within their ticket, (3) counted by pair and hour, and (4) the
best pairs of each hour are kept.

penstock generate tpcxbb --scale 0.1 tpcxbb
penstock run examples/tpcxbb/q1.py:make_flow
"""

from typing import NamedTuple

from tables import HOUR, Row, Top, categories, sale_time, store_sales

import penstock as ps

STORES = (1, 3, 5, 7, 9, 11)
CATEGORIES = (1, 2, 3)
AT_LEAST = 2


class Pair(NamedTuple):
    """Two items on one ticket, the smaller number first."""

    items: tuple[int, int]
    time: int


def pairs(bought: frozenset[int], sale: Row) -> tuple[frozenset[int], list[Pair]]:
    """A new item on a ticket makes a pair with each one that is there already."""
    item = sale["ss_item_sk"]
    new = [Pair((min(item, other), max(item, other)), sale_time(sale)) for other in sorted(bought - {item})]
    return bought | {item}, [] if item in bought else new


def query(flow: ps.Flow, data: str) -> ps.Stream[ps.WindowResult]:
    category = categories(data)

    def is_wanted(sale: Row) -> bool:
        return sale["ss_store_sk"] in STORES and category[sale["ss_item_sk"]] in CATEGORIES

    tickets = store_sales(flow, data).filter(is_wanted).key_by("ss_ticket_number")
    together = tickets.stateful_flat_map(pairs, init=frozenset, ttl=HOUR, time=sale_time)
    hours = ps.windows.tumbling(HOUR, time=lambda pair: pair.time)
    counts = together.key_by(lambda pair: pair.items).window(hours).count(name="per_hour")
    best: ps.Stream[ps.WindowResult] = counts >> Top(100, AT_LEAST)
    return best


def make_flow(data: str = "tpcxbb") -> ps.Flow:
    flow = ps.Flow("tpcxbb-q1")
    query(flow, data).write(ps.sinks.console())
    return flow
