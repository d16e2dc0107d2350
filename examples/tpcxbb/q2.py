"""TPCx-BB Q2: the 30 items that are viewed most often in one session with a given item, day by day.

Clicks are (1) filtered, (2) gathered in the sessions of their user, which end after an hour without a click; (3) the
other items of sessions with the given one are (4) counted by item and day, and (5) the best of each day are kept.

penstock generate tpcxbb --scale 0.1 tpcxbb
penstock run examples/tpcxbb/q2.py:make_flow
"""

from typing import NamedTuple

from tables import DAY, HOUR, Row, Top, click_time, web_clickstreams

import penstock as ps

ITEM = 1


class Seen(NamedTuple):
    """An item was viewed in a session with the given one."""

    item: int
    time: int


def is_view(click: Row) -> bool:
    return click["wcs_user_sk"] is not None and click["wcs_item_sk"] is not None


def seen_together(session: ps.WindowResult) -> list[Seen]:
    items = {click["wcs_item_sk"] for click in session.value}
    return [Seen(item, session.end) for item in sorted(items - {ITEM})] if ITEM in items else []


def query(flow: ps.Flow, data: str) -> ps.Stream[ps.WindowResult]:
    users = web_clickstreams(flow, data).filter(is_view).key_by("wcs_user_sk")
    sessions = users.window(ps.windows.session(HOUR, time=click_time)).collect(name="sessions")
    together = sessions.flat_map(seen_together)
    days = ps.windows.tumbling(DAY, time=lambda seen: seen.time)
    counts = together.key_by(lambda seen: seen.item).window(days).count(name="per_day")
    best: ps.Stream[ps.WindowResult] = counts >> Top(30)
    return best


def make_flow(data: str = "tpcxbb") -> ps.Flow:
    flow = ps.Flow("tpcxbb-q2")
    query(flow, data).write(ps.sinks.console())
    return flow
