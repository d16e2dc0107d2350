"""The only definition of a key's identity: equal keys have equal bytes, in every process and every run."""

from __future__ import annotations

import datetime
import math
import numbers
import struct
import uuid
import zlib
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

from penstock.errors import FlowError, short_repr

_LONG = 1 << 63
_NAN = b"fnan"
_EPOCH = datetime.datetime(1970, 1, 1)
_UTC_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def key_hash(key: object) -> int:
    """A stable 32-bit hash: the CRC-32 of the key's bytes, which Spark's `crc32` computes as well.

    >>> key_hash("user-7") == key_hash("user-7"), key_hash(1) == key_hash(1.0) == key_hash(True)
    (True, True)
    """
    return zlib.crc32(key_bytes(key))


def key_bytes(key: Any) -> bytes:
    """The canonical bytes of a key: a type letter, then the value; a tuple's parts carry their lengths.

    >>> key_bytes("a"), key_bytes(7.0), key_bytes((None, b"x"))
    (b'sa', b'i7', b't1:n2:bx')
    """
    kind = type(key)
    if kind is str:
        encoded: bytes = key.encode("utf-8", "surrogatepass")
        return b"s" + encoded
    if kind is int or kind is bool:
        return b"i%d" % key if -_LONG <= key < _LONG else _integer_bytes(key)
    return _other_key_bytes(key)


@dataclass(frozen=True)
class StoredKey:
    """Stands in a store for a key that is not equal to itself: no NaN is the same as another one, but their bytes are.

    >>> stored_key(float("nan")) == stored_key(float("nan")), stored_key("a")
    (True, 'a')
    """

    identity: bytes
    key: Any = field(compare=False)


def stored_key(key: Any) -> Any:
    """A key as a store keeps it: most often as it is."""
    if not isinstance(key, float | Decimal | tuple):
        return key
    identity = key_bytes(key)
    return StoredKey(identity, key) if _NAN in identity else key


def identity_of(stored: Any) -> bytes:
    """The canonical bytes of a key as a store keeps it."""
    return stored.identity if isinstance(stored, StoredKey) else key_bytes(stored)


def bucket_of(identity: bytes, buckets: int) -> int:
    """Which of so many buckets a key belongs to, by its canonical bytes."""
    return zlib.crc32(identity) % buckets


def firing_order(identity: bytes) -> tuple[int, bytes]:
    """What decides between keys that are due together: the hash, then the bytes."""
    return zlib.crc32(identity), identity


def _other_key_bytes(key: object) -> bytes:
    match key:
        case None:
            return b"n"
        case str():
            return b"s" + key.encode("utf-8", "surrogatepass")
        case bytes():
            return b"b" + key
        case tuple():
            parts = [key_bytes(part) for part in key]
            return b"t" + b"".join(b"%d:%s" % (len(part), part) for part in parts)
        case float() | Decimal() | numbers.Real():
            return _number_bytes(key)
        case datetime.datetime():
            if key.utcoffset() is None:
                return b"d%d" % _microseconds(key - _EPOCH)
            return b"z%d" % _microseconds(key - _UTC_EPOCH)
        case datetime.date():
            return b"D%d" % key.toordinal()
        case datetime.timedelta():
            return b"T%d" % _microseconds(key)
        case datetime.time():
            return b"h" + key.isoformat().encode()
        case uuid.UUID():
            return b"u" + key.bytes
        case Enum():
            return b"e" + f"{type(key).__module__}.{type(key).__qualname__}.{key.name}".encode()
    if type(key).__module__ == "numpy" and type(key).__hash__ is not None:
        plain = key.item()  # type: ignore[attr-defined]
        if type(plain) is not type(key):
            return key_bytes(plain)
    raise FlowError(
        f"{short_repr(key)} ({type(key).__name__}) can't be a key: a key is None, a number, str, bytes, date or "
        "time, UUID, Enum, or a tuple of these, so that it is the same in every process"
    )


def _integer_bytes(number: int) -> bytes:
    """Decimal digits up to 64 bits; beyond, Python limits how many it writes, but not in hexadecimal."""
    return b"i%d" % number if -_LONG <= number < _LONG else b"x%x" % number


def _number_bytes(number: Any) -> bytes:
    """Equal numbers of whatever type get equal bytes."""
    if isinstance(number, numbers.Integral):
        return _integer_bytes(int(number))
    try:
        numerator, denominator = number.as_integer_ratio()
    except (OverflowError, ValueError):  # infinite, or not a number
        return b"f" + str(float(number)).encode()
    if denominator == 1:
        return _integer_bytes(numerator)
    try:
        nearest = numerator / denominator
    except OverflowError:
        nearest = math.inf
    if nearest == Fraction(numerator, denominator):
        return b"f" + struct.pack(">d", nearest)
    return b"q%x/%x" % (numerator, denominator)


def _microseconds(delta: datetime.timedelta) -> int:
    return delta // datetime.timedelta(microseconds=1)
