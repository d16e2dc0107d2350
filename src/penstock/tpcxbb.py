"""The flow behind `penstock generate tpcxbb`: the tables that the streaming queries of TPCx-BB read, drawn from a seed.

Row number n is drawn from the seed and n alone, so tasks can make any part of a table, and together they make the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import penstock as ps

CLICKS = (
    "wcs_click_date_sk long, wcs_click_time_sk long, wcs_user_sk long, wcs_item_sk long, wcs_sales_sk long, "
    "wp_type string"
)
SALES = (
    "ss_sold_date_sk long, ss_sold_time_sk long, ss_store_sk long, ss_ticket_number long, ss_item_sk long, "
    "ss_net_paid decimal(7,2)"
)
ITEMS = "i_item_sk long, i_category_id long"

_FIRST_DAY = 20_454  # 2026-01-01, in days since 1970
_DAYS = 30
_DAY_SECONDS = 86_400
_CATEGORIES = 10
_STORES = 12
_SECONDS_BETWEEN_CLICKS = 30
_CLICKS_PER_VISIT = 16  # at the most
_LINES_PER_TICKET = 8  # at the most
_VISITS_IN_MEMORY = 20_000

Row = dict[str, Any]


class Page(NamedTuple):
    """What a visitor clicks on; `sale` is the number of the purchase, if it is one."""

    type: str
    item: int | None = None
    sale: int | None = None


class Visit(NamedTuple):
    user: int | None
    """`None` is an unknown visitor."""
    pages: list[Page]


class Ticket(NamedTuple):
    store: int
    items: list[int]
    prices: list[Decimal]


@dataclass(frozen=True)
class Shop:
    """A shop with stores and a web site in January 2026; at scale 1, about 900,000 clicks and 560,000 sales.

    Always the same number of visitors are on the site: the visitor at place p in their turn t clicks on page 1, 2, …
    until the turn is over, and the next visitor takes the place.
    """

    scale: float
    seed: int

    @property
    def clicks(self) -> int:
        """How many numbers there are for clicks; visits that are shorter than others leave some of them out."""
        return math.ceil(2_000_000 * self.scale)

    @property
    def lines(self) -> int:
        """How many numbers there are for lines of tickets; short tickets leave some of them out."""
        return math.ceil(1_000_000 * self.scale)

    @property
    def items(self) -> int:
        return _CATEGORIES * max(5, round(100 * math.sqrt(self.scale)))

    @property
    def users(self) -> int:
        return max(20, round(20_000 * self.scale))

    @property
    def places(self) -> int:
        return max(1, round(_SECONDS_BETWEEN_CLICKS * self.clicks / (_DAYS * _DAY_SECONDS)))

    def click(self, number: int) -> Row | None:
        step, place = divmod(number, self.places)
        turn, step = divmod(step + place, _CLICKS_PER_VISIT)
        visit = _visit(self, place, turn)
        if step >= len(visit.pages):
            return None
        date, time = _date_and_time(number / self.clicks)
        page = visit.pages[step]
        return {
            "wcs_click_date_sk": date,
            "wcs_click_time_sk": time,
            "wcs_user_sk": visit.user,
            "wcs_item_sk": page.item,
            "wcs_sales_sk": page.sale,
            "wp_type": page.type,
        }

    def sale(self, number: int) -> Row | None:
        ticket_number, line = divmod(number, _LINES_PER_TICKET)
        date, time = _date_and_time(ticket_number * _LINES_PER_TICKET / self.lines)
        ticket = _ticket(self, ticket_number, date - _FIRST_DAY)
        if line >= len(ticket.items):
            return None
        return {
            "ss_sold_date_sk": date,
            "ss_sold_time_sk": time,
            "ss_store_sk": ticket.store,
            "ss_ticket_number": ticket_number + 1,
            "ss_item_sk": ticket.items[line],
            "ss_net_paid": ticket.prices[line],
        }

    def item(self, number: int) -> Row:
        return {"i_item_sk": number + 1, "i_category_id": number % _CATEGORIES + 1}

    def some_item(self, chance: Random, category: int) -> int:
        """An item of a category; few of them are popular."""
        return _CATEGORIES * int(chance.random() ** 3 * self.items / _CATEGORIES) + category


@lru_cache(_VISITS_IN_MEMORY)
def _visit(shop: Shop, place: int, turn: int) -> Visit:
    """A welcome page, some items of mostly one category, some of them put into the cart ("dynamic"); maybe an order."""
    chance = Random(f"{shop.seed} visit {place} {turn}")
    user = 1 + int(shop.users * chance.random() ** 2) if chance.random() < 0.9 else None
    favourite = chance.randint(1, _CATEGORIES)
    pages, cart = [Page("welcome")], []
    for _ in range(chance.randint(0, 9)):
        category = favourite if chance.random() < 0.8 else chance.randint(1, _CATEGORIES)
        item = shop.some_item(chance, category)
        pages.append(Page("general", item))
        if chance.random() < 0.25:
            pages.append(Page("dynamic", item))
            cart.append(item)
    if chance.random() < 0.4:
        sale = turn * shop.places + place + 1
        pages += [Page("order", item, sale) for item in cart]
    return Visit(user, pages[:_CLICKS_PER_VISIT])


@lru_cache(1)
def _ticket(shop: Shop, number: int, day: int) -> Ticket:
    """Some items of mostly one category; the first categories are bought less from day to day, the last ones more."""
    chance = Random(f"{shop.seed} ticket {number}")
    middle = (1 + _CATEGORIES) / 2
    categories = range(1, _CATEGORIES + 1)
    weights = [1 + (category - middle) / _CATEGORIES * day / _DAYS for category in categories]
    (favourite,) = chance.choices(categories, weights)
    items = [
        shop.some_item(chance, favourite if chance.random() < 0.8 else chance.randint(1, _CATEGORIES))
        for _ in range(chance.randint(1, _LINES_PER_TICKET))
    ]
    prices = [Decimal(chance.randint(99, 9_999)) / 100 for _ in items]
    return Ticket(chance.randint(1, _STORES), items, prices)


def _date_and_time(share: float) -> tuple[int, int]:
    """The day, and the second of the day, when a share of everything is over: at noon four times as much happens as at
    midnight."""
    days = share * _DAYS
    day = int(days)
    part = days - day
    return _FIRST_DAY + day, int(_DAY_SECONDS * (part + part * (1 - part) * (1 - 2 * part)))


def make_flow(output: Path, scale: float, seed: int) -> ps.Flow:
    """Three tables as CSV files, in the order of time: `web_clickstreams`, `store_sales` and `item`."""
    shop = Shop(scale, seed)
    flow = ps.Flow("generate-tpcxbb")
    clicks = flow.read(ps.sources.generate(shop.click, count=shop.clicks), name="clicks").filter(bool, name="clicked")
    clicks.write(ps.sinks.csv(output / "web_clickstreams", CLICKS), name="web_clickstreams")
    sales = flow.read(ps.sources.generate(shop.sale, count=shop.lines), name="sales").filter(bool, name="sold")
    sales.write(ps.sinks.csv(output / "store_sales", SALES), name="store_sales")
    items = flow.read(ps.sources.generate(shop.item, count=shop.items), name="items")
    items.write(ps.sinks.csv(output / "item", ITEMS), name="item")
    return flow
