"""What controllers may want: a closed set of frozen classes, one for each kind of number that an engine can change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.errors import FlowError, short_repr

What = Literal["threads", "replicas", "helping", "executors", "rows"]
_BETWEEN = " > "
"""Between the two names of a pair in the journal; no operator's name can hold it."""


class _ByName(type):
    """Lets `Change("replicas", …)` make the class of that name."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        return _named(*args, **fields) if cls is Change else super().__call__(*args, **fields)


@dataclass(frozen=True, kw_only=True)
class Change(metaclass=_ByName):
    """A number that a controller wants to be another one, and why in one sentence.

    Made by the name of what is changed: `"threads"`, `"replicas"` of an operator (on Spark the tasks of its stage), how
    much the first of a pair `"helper > helped"` is `"helping"` the second, how many tasks the `"executors"` can run at
    once, or how many `"rows"` a batch may read. What is no operator's has an empty name.

    >>> Change("replicas", "split", 1, 3, "it has three replicas' work")
    SetReplicas(before=1, after=3, reason="it has three replicas' work", operator='split')
    >>> Change("helping", "split > count", 0.0, 0.2, "it asks for help").helped
    'count'
    """

    before: float
    after: float
    reason: str
    what: ClassVar[What]

    if TYPE_CHECKING:

        def __init__(self, what: What, operator: str, before: float, after: float, reason: str) -> None: ...

        @property
        def operator(self) -> str:
            """Whose number it is, as the journal tells it; empty for the whole flow's."""

    @property
    def measured(self) -> str:
        """The operator whose signals led to it; empty for the whole flow's."""
        return self.operator

    def __str__(self) -> str:
        whose = f" of {self.operator!r}" if self.operator else ""
        return f"{self.what}{whose} from {self.before} to {self.after}"


class _OfFlow(Change):
    operator: ClassVar[str] = ""


@dataclass(frozen=True)
class SetThreads(_OfFlow):
    """So many workers, whatever operators they are in."""

    what: ClassVar[What] = "threads"


@dataclass(frozen=True)
class SetReplicas(Change):
    """So many workers at most in one operator, or so many tasks for its stage."""

    operator: str
    what: ClassVar[What] = "replicas"


@dataclass(frozen=True)
class SetHelping(Change):
    """Such a share of what an operator emits is processed by its own workers with the next operator's function."""

    helper: str
    helped: str
    what: ClassVar[What] = "helping"

    @property
    def operator(self) -> str:
        return f"{self.helper}{_BETWEEN}{self.helped}"

    @property
    def measured(self) -> str:
        return self.helped


@dataclass(frozen=True)
class SetExecutors(_OfFlow):
    """Executors that can run so many tasks at once."""

    what: ClassVar[What] = "executors"


@dataclass(frozen=True)
class AdmitRows(_OfFlow):
    """At most so many tuples of each source in a batch."""

    what: ClassVar[What] = "rows"


_OF_FLOW: dict[str, type[Change]] = {one.what: one for one in (SetThreads, SetExecutors, AdmitRows)}


def _named(what: What, operator: str, before: float, after: float, reason: str) -> Change:
    numbers: dict[str, Any] = {"before": before, "after": after, "reason": reason}
    if what == "replicas":
        return SetReplicas(operator, **numbers)
    if what == "helping":
        helper, _, helped = operator.partition(_BETWEEN)
        return SetHelping(helper, helped, **numbers)
    if what in _OF_FLOW:
        return _OF_FLOW[what](**numbers)
    known = ", ".join(map(repr, [*_OF_FLOW, "replicas", "helping"]))
    raise FlowError(f"a ps.Change is of one of {known}, not of {short_repr(what)}")
