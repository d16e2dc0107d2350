"""Keys by the thousand: the only code that finds the hashes of many keys at once, the same that `key_hash` gives."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import FlowError
from penstock.ordering.keys import key_hash

_ALL_ONES = np.uint32(0xFFFFFFFF)
_POWERS = np.array([10**exponent for exponent in range(1, 20)], dtype=np.uint64)


def column_hashes(table: pa.Table, columns: Sequence[str]) -> Any:
    """The hash of each row's key, or `None` where the rows have to be looked at one by one.

    >>> column_hashes(pa.table({"user": [7, -12, 0]}), ["user"]).tolist() == [key_hash(n) for n in (7, -12, 0)]
    True
    """
    if len(columns) != 1 or columns[0] not in table.column_names:
        return None
    column = table.column(columns[0]).combine_chunks()
    if pa.types.is_signed_integer(column.type) and not column.null_count:
        return _integer_hashes(column.to_numpy().astype(np.int64))
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
        hashes = key_hashes(encoded.dictionary.to_pylist())
    except (pa.ArrowException, FlowError):
        return None  # these can't be keys: the operator says so
    return hashes[encoded.indices.to_numpy()]


def key_hashes(keys: Sequence[Any]) -> Any:
    """The hash of each key; `FlowError` where one can't be a key.

    >>> key_hashes(["a", "b"]).tolist() == [key_hash("a"), key_hash("b")]
    True
    """
    kinds = set(map(type, keys))
    with suppress(OverflowError, UnicodeEncodeError):
        if kinds == {int}:
            return _integer_hashes(np.array(keys, dtype=np.int64))
        if kinds == {str}:
            return np.array([zlib.crc32(b"s" + key.encode()) for key in keys], dtype=np.int64)
    return np.array([key_hash(key) for key in keys], dtype=np.int64)


def _integer_hashes(numbers: Any) -> Any:
    """The CRC-32 of `i` and the decimal digits of each number, digit by digit for all of them."""
    is_negative = numbers < 0
    rest = numbers.astype(np.uint64)
    rest = np.where(is_negative, ~rest + np.uint64(1), rest)
    crcs = np.full(len(numbers), zlib.crc32(b"i"), dtype=np.uint32) ^ _ALL_ONES
    crcs = np.where(is_negative, _with_byte(crcs, ord("-")), crcs)
    lengths = np.searchsorted(_POWERS, rest, side="right") + 1
    shortest = int(lengths.min(initial=20))
    for exponent in range(int(lengths.max(initial=1)) - 1, -1, -1):
        digits = rest // np.uint64(10**exponent)
        rest = rest - digits * np.uint64(10**exponent)
        longer = _with_byte(crcs, digits.astype(np.uint32) + ord("0"))
        crcs = longer if exponent < shortest else np.where(lengths > exponent, longer, crcs)
    return (crcs ^ _ALL_ONES).astype(np.int64)


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0xEDB88320 if byte & 1 else 0)
    return byte


_CRC_OF_BYTE = np.array([_crc_of_byte(byte) for byte in range(256)], dtype=np.uint32)


def _with_byte(crcs: Any, byte: Any) -> Any:
    return _CRC_OF_BYTE[(crcs ^ byte) & 0xFF] ^ (crcs >> np.uint32(8))
