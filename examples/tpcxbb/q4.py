"""TPCx-BB Q4: how many pages users visit, on average, in sessions in which they fill a cart and do not check out.

Clicks are (1) filtered and (2) counted by page type in the sessions of their user; (3) abandoned carts are kept, and
(4) their running average is told.

penstock generate tpcxbb --scale 0.1 tpcxbb
penstock run examples/tpcxbb/q4.py:make_flow
"""

import operator
from collections import Counter
from typing import NamedTuple

from tables import HOUR, Row, click_time, web_clickstreams

import penstock as ps


class Average(NamedTuple):
    """Of all abandoned sessions that were over until a time."""

    until: int
    sessions: int
    pages: float


class Totals(NamedTuple):
    sessions: int = 0
    pages: int = 0


def add_page(pages: Counter[str], click: Row) -> Counter[str]:
    pages[click["wp_type"]] += 1
    return pages


def is_abandoned(session: ps.WindowResult) -> bool:
    pages: Counter[str] = session.value
    return "dynamic" in pages and "order" not in pages


def average(so_far: Totals, session: ps.WindowResult) -> tuple[Totals, Average]:
    now = Totals(so_far.sessions + 1, so_far.pages + session.value.total())
    return now, Average(session.end, now.sessions, now.pages / now.sessions)


def query(flow: ps.Flow, data: str) -> ps.Stream[Average]:
    known = web_clickstreams(flow, data).filter(lambda click: click["wcs_user_sk"] is not None, name="is_known")
    sessions = known.key_by("wcs_user_sk").window(ps.windows.session(HOUR, time=click_time))
    pages = sessions.aggregate(Counter[str], add_page, merge=operator.add, name="sessions")
    return pages.filter(is_abandoned).scan(average, init=Totals)


def make_flow(data: str = "tpcxbb") -> ps.Flow:
    flow = ps.Flow("tpcxbb-q4")
    query(flow, data).write(ps.sinks.console())
    return flow
