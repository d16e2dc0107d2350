"""Find phones that travel faster than a phone can: Figure 1 of "Scaling Ordered Stream Processing".

Call records are (1) filtered by area code and (2) projected to where each phone was when; (3) the speed between a
phone's consecutive places is computed, (4) impossible speeds are kept, and (5) counted per phone and time window.

penstock run examples/high_mobility_fraud.py:flow --engine sequential
"""

import math
import random
from typing import Any, NamedTuple

import penstock as ps

AREA_CODE = "312"
FASTEST_KMH = 900.0
WINDOW_SECONDS = 3600
CLONED = (7, 23)  # phones with a copy at the other end of the country


class Call(NamedTuple):
    caller: str
    callee: str
    time: float
    caller_place: tuple[float, float]
    callee_place: tuple[float, float]


class Seen(NamedTuple):
    """A phone was at a place, in kilometres east and north."""

    phone: str
    time: float
    place: tuple[float, float]


def make_call(number: int) -> Call:
    """The same call for the same number, always; one every twenty seconds."""
    chance = random.Random(number)
    caller, callee = chance.sample(range(40), 2)

    def place(phone: int) -> tuple[float, float]:
        far_away = 3000.0 if phone in CLONED and chance.random() < 0.5 else 0.0
        return (far_away + chance.uniform(0, 3), chance.uniform(0, 3))

    return Call(_phone(caller), _phone(callee), number * 20.0, place(caller), place(callee))


def _phone(number: int) -> str:
    return f"{AREA_CODE if number % 4 else '773'}-555-{number:04d}"


def places(call: Call) -> list[Seen]:
    return [Seen(call.caller, call.time, call.caller_place), Seen(call.callee, call.time, call.callee_place)]


def speed(last: Seen | None, seen: Seen) -> tuple[Seen, dict[str, Any]]:
    kmh = 0.0
    if last is not None and seen.time > last.time:
        kmh = math.dist(last.place, seen.place) / (seen.time - last.time) * 3600
    return seen, {"phone": seen.phone, "time": seen.time, "kmh": kmh}


def make_flow(calls: int = 2000) -> ps.Flow:
    flow = ps.Flow("high-mobility-fraud")
    records = flow.read(ps.sources.generate(make_call, count=calls), name="calls")
    local = records.filter(lambda call: call.caller.startswith(AREA_CODE), name="area_code")
    seen = local.flat_map(places)
    speeds = seen.key_by(lambda seen: seen.phone).stateful_map(speed, init=lambda: None)
    too_fast = speeds.filter(lambda row: row["kmh"] > FASTEST_KMH, name="too_fast")
    by_phone = too_fast.key_by(lambda row: row["phone"])
    hourly = by_phone.window(ps.windows.tumbling(WINDOW_SECONDS, time=lambda row: row["time"]))
    hourly.count(name="per_hour").map(
        lambda window: f"{window.key} {window.value} times from {window.start:.0f} s to {window.end:.0f} s", name="line"
    ).write(ps.sinks.console())
    return flow


flow = make_flow()
