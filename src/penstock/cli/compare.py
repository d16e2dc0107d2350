"""Whether two engines gave a sink the same tuples: the only definition of "the same" that survives a pickle."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from penstock.errors import short_repr

_CONTEXT = 2
_NOTHING = object()


@dataclass(frozen=True)
class EngineOutput:
    """What one engine gave to one sink."""

    engine: str
    items: Sequence[Any]


def difference_in_order(outputs: Sequence[EngineOutput]) -> list[str]:
    """The first position at which an engine differs from the first one, as lines to print; empty where there is none.

    >>> print(*difference_in_order([EngineOutput("sequential", [1, 2, 3]), EngineOutput("local", [1, 2])]), sep="\\n")
    the first difference is at position 2
      sequential, 3 tuples
          0: 1
          1: 2
        > 2: 3
      local, 2 tuples
          0: 1
          1: 2
        > 2: has ended
    """
    reference, *others = outputs
    positions = [_first_difference(reference.items, other.items) for other in others]
    found = [position for position in positions if position is not None]
    if not found:
        return []
    position = min(found)
    lines = [f"the first difference is at position {position:,}"]
    for output in outputs:
        lines.append(f"  {output.engine}, {_tuples(len(output.items))}")
        for near in range(max(0, position - _CONTEXT), position + 1):
            shown = short_repr(output.items[near]) if near < len(output.items) else "has ended"
            lines.append(f"    {'>' if near == position else ' '} {near:,}: {shown}")
    return lines


def difference_as_sets(outputs: Sequence[EngineOutput]) -> list[str]:
    """What one engine has and another has not, however they are ordered; empty where there is no such tuple.

    >>> print(*difference_as_sets([EngineOutput("sequential", [1, 2, 2]), EngineOutput("local", [2, 1, 3])]), sep="\\n")
    only on sequential, and not on local: 1 tuple, the first at position 2: 2
    only on local, and not on sequential: 1 tuple, the first at position 2: 3
    """
    reference, *others = outputs
    lines = []
    for other in others:
        lines += _only_on(reference, other)
        lines += _only_on(other, reference)
    return lines


def _tuples(count: int) -> str:
    return f"{count:,} tuple{'' if count == 1 else 's'}"


def _first_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> int | None:
    pairs = zip_longest(ours, theirs, fillvalue=_NOTHING)
    return next((position for position, (our, their) in enumerate(pairs) if frozen(our) != frozen(their)), None)


def _only_on(here: EngineOutput, there: EngineOutput) -> list[str]:
    left = Counter(map(frozen, there.items))
    lonely = []
    for position, value in enumerate(here.items):
        form = frozen(value)
        if left[form]:
            left[form] -= 1
        else:
            lonely.append(position)
    if not lonely:
        return []
    first = lonely[0]
    return [
        f"only on {here.engine}, and not on {there.engine}: {_tuples(len(lonely))}, "
        f"the first at position {first:,}: {short_repr(here.items[first])}"
    ]


def frozen(value: Any) -> Hashable:
    """A form in which equal means: of the same types and content, even after a way through a pickle.

    Python's `==` alone would call NaN different from itself, 1 the same as True, and two copies of an object different.

    >>> frozen(float("nan")) == frozen(float("nan")), frozen([1]) == frozen([True])
    (True, False)
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None or value is _NOTHING:
        return kind, value
    if kind is float:
        return kind, repr(value)  # tells 0.0 from -0.0, and takes NaN for itself
    if isinstance(value, tuple | list):
        return kind, tuple(map(frozen, value))
    if isinstance(value, Mapping):
        return kind, frozenset((frozen(key), frozen(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return kind, frozenset(map(frozen, value))
    if dataclasses.is_dataclass(value):
        return kind, tuple(frozen(getattr(value, field.name)) for field in dataclasses.fields(value))
    if "__eq__" in {name for base in kind.__mro__[:-1] for name in vars(base)} and kind.__hash__ is not None:
        return kind, value
    if getattr(value, "__dict__", None):
        return kind, frozen(vars(value))
    try:
        return kind, pickle.dumps(value)
    except Exception:  # it never left this process, so it is only the same as itself
        return kind, id(value)
