"""Keys: equal ones have equal bytes, others don't, in every process."""

import datetime as dt
import itertools
import json
import math
import os
import subprocess
import sys
import uuid
import zlib
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ordering.keys import firing_order, key_bytes, key_hash


class Color(Enum):
    RED = 1
    CRIMSON = RED
    BLUE = 2


class Other(Enum):
    RED = 1


class Size(IntEnum):
    LARGE = 3


class Taste(StrEnum):
    SWEET = "sweet"


class Right(Flag):
    READ = 1
    WRITE = 2


ZONES = st.sampled_from(
    [dt.UTC, ZoneInfo("Europe/Prague"), ZoneInfo("Asia/Tokyo"), dt.timezone(dt.timedelta(hours=-5))]
)
NUMBERS = (
    st.booleans()
    | st.integers()
    | st.integers(-10, 10)
    | st.floats(allow_nan=False)
    | st.integers(-10, 10).map(float)
    | st.decimals(allow_nan=False)
    | st.decimals(-5, 5, places=1)
    | st.fractions()
    | st.fractions(-5, 5, max_denominator=4)
    | st.sampled_from([10**400, -(10**400), Decimal("1e400"), Fraction(10**400, 3), 2**63, -(2**63) - 1, float(2**63)])
)
ATOMS = (
    st.none()
    | NUMBERS
    | st.text(st.characters(), max_size=4)
    | st.binary(max_size=4)
    | st.dates()
    | st.datetimes()
    | st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=ZONES)
    | st.timedeltas()
    | st.times()
    | st.uuids()
    | st.sampled_from([*Color, *Other, *Size, *Taste, *Right, "sweet", 3])
)
KEYS = st.recursive(ATOMS, lambda part: st.lists(part, max_size=3).map(tuple), max_leaves=4)


def same(one, other):
    """Whether Python calls two keys equal; for times of one zone that is a question of the clock on the wall."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dt.datetime) and isinstance(other, dt.datetime) and one.tzinfo and other.tzinfo:
        return one.astimezone(dt.UTC) == other.astimezone(dt.UTC)
    return bool(one == other)


@settings(deadline=None)
@given(KEYS, KEYS)
@example(("a", "b"), ("ab",))
@example(Decimal("1e400"), math.inf)
def test_equal_keys_have_equal_bytes_and_others_do_not(one, other):
    assert (key_bytes(one) == key_bytes(other)) == same(one, other)


@settings(deadline=None)
@given(NUMBERS, NUMBERS)
def test_numbers_are_equal_across_their_types(one, other):
    assert (key_bytes(one) == key_bytes(other)) == bool(one == other)


@settings(deadline=None)
@given(
    st.builds(np.int8, st.integers(-128, 127))
    | st.builds(np.uint64, st.integers(0, 2**64 - 1))
    | st.builds(np.float32, st.floats(width=32))
    | st.builds(np.float64, st.floats())
    | st.builds(np.bool_, st.booleans())
    | st.builds(np.str_, st.text().map(lambda text: text.rstrip("\0")))  # which `item` cuts off, and str does not
)
def test_numpy_scalars_are_the_keys_that_they_stand_for(scalar):
    assert key_bytes(scalar) == key_bytes(scalar.item())


EQUAL = [
    [0, 0.0, -0.0, False, Decimal(0), Decimal("-0.00"), Fraction(0), np.int8(0), np.float64(-0.0), np.bool_(False)],
    [1, 1.0, True, Decimal("1.000"), Fraction(3, 3), np.uint64(1), np.float16(1), np.longdouble(1), np.bool_(True)],
    [Decimal("0.1"), Fraction(1, 10)],
    [0.5, Decimal("0.5"), Fraction(1, 2), np.float32(0.5), np.longdouble(0.5)],
    [float(np.float32(0.1)), np.float32(0.1)],
    [10**400, Decimal("1e400"), Fraction(10**400)],
    [2**63, float(2**63), np.uint64(2**63)],
    [math.inf, Decimal("Infinity"), np.float32("inf")],
    [math.nan, -math.nan, Decimal("NaN"), np.float64("nan")],
    ["x", np.str_("x")],
    ["sweet", Taste.SWEET],
    [b"x", np.bytes_(b"x")],
    [3, Size.LARGE],
    [Color.RED, Color.CRIMSON],
    [(1, ("a", None)), (True, ("a", None)), (Decimal(1), (np.str_("a"), None))],
    [
        dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2024, 7, 1, 14, tzinfo=ZoneInfo("Europe/Prague")),
        dt.datetime(2024, 7, 1, 7, tzinfo=dt.timezone(dt.timedelta(hours=-5))),
    ],
    [dt.timedelta(days=1), dt.timedelta(hours=24)],
    [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, fold=1), np.datetime64("2024-01-01T00:00:00")],
    [uuid.UUID(int=7), uuid.UUID("00000000-0000-0000-0000-000000000007")],
]


@pytest.mark.parametrize("keys", EQUAL, ids=lambda keys: str(keys[0])[:20])
def test_equal_keys_of_different_types_have_equal_bytes(keys):
    assert len({key_bytes(key) for key in keys}) == len({key_hash(key) for key in keys}) == 1


DIFFERENT = [
    *[keys[0] for keys in EQUAL],
    None,
    "",
    b"",
    (),
    ((),),
    ((), ()),
    (None,),
    "None",
    "1",
    "i1",
    b"1",
    (1,),
    ("a", "b"),
    ("ab",),
    ("ab", ""),
    ("", "ab"),
    ("a", ("b",)),
    (("a",), "b"),
    ("a1:sb",),
    (b"a", "b"),
    "\ud800",
    "\ud801",
    "é",
    "e\u0301",
    0.1,
    Fraction(1, 3),
    1 / 3,
    np.longdouble(1) / 3,
    -math.inf,
    10**5000,
    10**5000 + 1,
    2**64,
    Color.BLUE,
    Other.RED,
    Right.READ,
    Right.READ | Right.WRITE,
    Right(0),
    dt.date(2024, 1, 1),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2024, 1, 1, 0, 0, 0, 1),
    dt.datetime.min,
    dt.datetime.max,
    dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-14))),
    dt.time(12),
    dt.time(12, 0, 0, 1),
    dt.timedelta(0),
    dt.timedelta(microseconds=-1),
    uuid.UUID(int=8),
    uuid.UUID(int=8).bytes,
]


def test_keys_that_differ_have_different_bytes():
    pairs = itertools.combinations(DIFFERENT, 2)
    assert [pair for pair in pairs if key_bytes(pair[0]) == key_bytes(pair[1])] == []


def test_the_hash_is_what_spark_computes_from_the_bytes():
    assert key_hash("user-7") == zlib.crc32(b"suser-7")
    assert firing_order(b"suser-7") == (key_hash("user-7"), b"suser-7")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, b"n"),
        (True, b"i1"),
        (-7, b"i-7"),
        (7.0, b"i7"),
        (2**63 - 1, b"i9223372036854775807"),
        ("é", b"s\xc3\xa9"),
        (b"\xff", b"b\xff"),
        (("a", None), b"t2:sa1:n"),
        (0.5, b"f?\xe0\0\0\0\0\0\0"),
    ],
)
def test_the_bytes_that_checkpoints_and_the_jvm_rely_on(key, expected):
    assert key_bytes(key) == expected


@pytest.mark.parametrize("seed", ["0", "12345"])
def test_the_hash_is_the_same_in_every_process(seed):
    program = "from tests.ordering.test_keys import *; print(json.dumps(list(map(key_hash, DIFFERENT))))"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert json.loads(result.stdout) == list(map(key_hash, DIFFERENT))


@pytest.mark.parametrize(
    "key",
    [
        *([1], {}, {1}, frozenset(), object(), int, 1j, bytearray(b"x"), range(3), (1, [2]), ((), {}), len),
        *(np.array([1]), np.array([1, 2]), np.complex64(1), np.clongdouble(1)),
    ],
    ids=lambda key: type(key).__name__,
)
def test_other_types_are_a_flow_error_that_names_them(key):
    with pytest.raises(ps.FlowError, match="can't be a key: a key is None, a number, str, bytes"):
        key_bytes(key)
