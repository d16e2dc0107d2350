"""What an operator remembers, and which of it has changed, as values that a store can keep."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any, NamedTuple


class Kept(NamedTuple):
    """All that an operator remembers: by key, and what belongs to none."""

    by_key: Mapping[Any, Any]
    rest: Any = None


class Changed(NamedTuple):
    """What has changed since an operator was last asked; with `is_all`, whatever else was kept is gone."""

    by_key: Mapping[Any, Any]
    deleted: Collection[Hashable] = ()
    rest: Any = None
    is_all: bool = False


class Keeper:
    """What operators live in: it knows what they remember, by their names. Here, nothing."""

    def snapshots(self) -> dict[str, Kept]:
        """What each operator must have to go on in another life; nothing for those without state."""
        return {}

    def changed(self) -> dict[str, Changed]:
        """What has changed in that since this was last called."""
        return {}

    def restore(self, kept: Mapping[str, Kept]) -> None:
        """Go on with the snapshots of an earlier life."""


def changed_of(touched: Collection[Hashable], states: Mapping[Any, Any], rest: Any = None) -> Changed:
    """The keys that were touched, with their states, or as gone.

    >>> changed_of({"b"}, {"a": 1, "b": 2}), changed_of({"c"}, {"a": 1}).deleted
    (Changed(by_key={'b': 2}, deleted=[], rest=None, is_all=False), ['c'])
    """
    by_key = {key: states[key] for key in touched if key in states}
    return Changed(by_key, [key for key in touched if key not in states], rest)


class Touched(dict[Any, bool]):
    """The keys whose states may have changed since a store was last told of changes, and whether the store has each.

    What has come and gone in between leaves nothing here: the store need not hear of it.

    >>> touched = Touched()
    >>> touched.came("a"), touched.changed("b"), touched.went("a"), touched.went("b")
    (None, None, None, None)
    >>> touched
    {'b': True}
    """

    def came(self, key: Hashable) -> None:
        """It has got a state."""
        self.setdefault(key, False)

    def changed(self, key: Hashable) -> None:
        """Its state may be another one from now on."""
        self.setdefault(key, True)

    def went(self, key: Hashable) -> None:
        """Its state is no more."""
        if not self.setdefault(key, True):
            del self[key]


class Ageing(dict[Any, Any]):
    """The states of a keyed function, of which those that were not touched lately lie aside.

    What is in the dict itself has been touched since `take_changed` was last called: a loop that looks states up as in
    any other dict pays nothing for that but the first look at each key.

    >>> states = Ageing()
    >>> states["a"], states["b"] = 1, 2
    >>> states.take_changed()
    {'a': 1, 'b': 2}
    >>> states["b"] += 1
    >>> states.take_changed(), states.take_changed(), states.everything()
    ({'b': 3}, {}, {'a': 1, 'b': 3})
    """

    def __init__(self) -> None:
        super().__init__()
        self._aside: dict[Any, Any] = {}

    def __missing__(self, key: Any) -> Any:
        state = self[key] = self._aside.pop(key)
        return state

    def everything(self) -> dict[Any, Any]:
        return {**self._aside, **self}

    def put_aside(self, states: Mapping[Any, Any]) -> None:
        """Remember these as nothing new."""
        self._aside.update(states)

    def take_changed(self) -> dict[Any, Any]:
        """What was touched since this was last called."""
        changed = dict(self)
        self._aside.update(changed)
        self.clear()
        return changed
