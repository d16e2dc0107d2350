"""TPCx-BB Q15: the categories with flat or declining sales in a store, told again after each day.

Sales are (1) filtered by store and (2) given the category of their item; (3) a line is put through the daily sums of
each category, and those whose line does not rise are told.

penstock generate tpcxbb --scale 0.1 tpcxbb
penstock run examples/tpcxbb/q15.py:make_flow
"""

from decimal import Decimal
from statistics import linear_regression
from typing import NamedTuple

from tables import Row, categories, store_sales

import penstock as ps

STORE = 10


class Sale(NamedTuple):
    category: int
    day: int
    paid: Decimal


class Decline(NamedTuple):
    """A category's daily sales changed by `slope` from day to day, up to and with this day."""

    category: int
    day: int
    slope: float


def decline(sums: dict[int, Decimal], sale: Sale) -> tuple[dict[int, Decimal], list[Decline]]:
    """The sums of all days; the first sale of a day says that the days before are over."""
    declines = []
    if sale.day not in sums and len(sums) > 1:
        slope = linear_regression(list(sums), [float(paid) for paid in sums.values()]).slope
        if slope <= 0:
            declines.append(Decline(sale.category, max(sums), slope))
    sums[sale.day] = sums.get(sale.day, Decimal(0)) + sale.paid
    return sums, declines


def query(flow: ps.Flow, data: str) -> ps.Stream[Decline]:
    category = categories(data)

    def with_category(sale: Row) -> Sale:
        return Sale(category[sale["ss_item_sk"]], sale["ss_sold_date_sk"], sale["ss_net_paid"])

    sold = store_sales(flow, data).filter(lambda sale: sale["ss_store_sk"] == STORE, name="in_store")
    by_category = sold.map(with_category).key_by(lambda sale: sale.category)
    return by_category.stateful_flat_map(decline, init=dict)


def make_flow(data: str = "tpcxbb") -> ps.Flow:
    flow = ps.Flow("tpcxbb-q15")
    query(flow, data).write(ps.sinks.console())
    return flow
