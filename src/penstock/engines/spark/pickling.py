"""How what belongs to users is pickled for Spark's tasks: functions, tuples and states; by value where tasks could not
import their modules."""

from __future__ import annotations

import functools
import os
import pickle
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

from pyspark import cloudpickle

from penstock.errors import FlowError, OperatorError, PenstockError, describe_exception, short_repr
from penstock.flow.nodes import Node, Writes

_INSTALLED = tuple(
    os.path.realpath(path) + os.sep
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OURSELVES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))) + os.sep


def dumps(value: Any) -> bytes:
    """Tuples and states: by plain pickle, or, where their classes can't be imported, with the classes."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        data: bytes = cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        return data


def refuse_unpicklable(flow: str, node: Node | None, values: Iterable[Any], error: Exception) -> NoReturn:
    """Tell which tuple can't leave the process it was made in; raise the error itself, if that is not what is wrong."""
    if not isinstance(error, PenstockError) and node is not None:
        for value in values:
            try:
                dumps(value)
            except Exception as reason:
                what = "was given" if isinstance(node.kind, Writes) else "returned"
                raise OperatorError(
                    f"operator {node.name!r} of flow {flow!r} ({node.where}) {what} {short_repr(value)}, which can't "
                    f"be sent from one of Spark's tasks to another, because it can't be pickled "
                    f"({describe_exception(reason)}); return plain data, and make connections, locks and files where "
                    "they are used",
                    operator=node.name,
                ) from reason
    raise error


def pickled(value: Any, flow: str) -> bytes:
    """A value with users' functions in it; `FlowError` for what can't be sent to tasks."""
    with _by_value():
        try:
            data: bytes = cloudpickle.dumps(value)
        except Exception as error:
            raise FlowError(
                f"flow {flow!r}: a function can't be sent to Spark's tasks, because something it refers to can't be "
                f"pickled ({describe_exception(error)}); make connections, locks and files inside the function"
            ) from error
    return data


@contextmanager
def _by_value() -> Iterator[None]:
    """Modules that are not installed (scripts, notebooks, tests) travel with what refers to them."""
    registered = []
    for module in list(sys.modules.values()):
        if _travels(module) and module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _travels(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not file or module.__name__ == "__main__" or module.__name__ not in sys.modules:
        return False
    return not _is_installed(file)


@functools.cache
def _is_installed(file: str) -> bool:
    """Asked for every module at every batch, and finding the real path of one takes a tenth of a millisecond."""
    return os.path.realpath(file).startswith((*_INSTALLED, _OURSELVES))
