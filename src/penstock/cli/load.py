"""Finding the flow that `module:flow` names."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.errors import FlowError
from penstock.flow import Flow

_EXAMPLE = "name it as package.module:flow, path/to/file.py:flow or module:make_flow('x')"


def load_flow(target: str) -> Flow:
    """The flow behind `module:flow`, `path/to/file.py:flow` or a factory with literal arguments."""
    where, _, expression = target.rpartition(":") if ":" in target else (target, "", "flow")
    if not where:
        raise FlowError(f"{target!r} names no module: {_EXAMPLE}")
    module = _load_module(where)
    found = _evaluate(module, expression, target)
    if not isinstance(found, Flow):
        raise FlowError(f"{target!r} is a {type(found).__name__}, not a flow: {_EXAMPLE}")
    return found


def _load_module(where: str) -> ModuleType:
    if where.endswith(".py") or os.sep in where:
        path = Path(where)
        if not path.is_file():
            raise FlowError(f"there is no file {where!r} (looked from {os.getcwd()!r})")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        sys.path.insert(0, str(path.parent.resolve()))
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not (where + ".").startswith(error.name + "."):
            raise  # the module is there, and something it imports is not
        raise FlowError(f"there is no module {where!r}: {_EXAMPLE}") from None


def _evaluate(module: ModuleType, expression: str, target: str) -> Any:
    """A name, or a call of a name with literal arguments; nothing else is evaluated."""
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError:
        raise FlowError(f"{expression!r} in {target!r} is neither a name nor a call: {_EXAMPLE}") from None
    match tree:
        case ast.Name(id=name):
            found = _attribute(module, name, target)
            return found() if callable(found) and not isinstance(found, Flow) else found
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            try:
                values = [ast.literal_eval(arg) for arg in args]
                named = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in keywords}
            except ValueError:
                raise FlowError(f"the arguments in {target!r} must be literals, such as 'x', 3 or [1, 2]") from None
            return _attribute(module, name, target)(*values, **named)
    raise FlowError(f"{expression!r} in {target!r} is neither a name nor a call: {_EXAMPLE}")


def _attribute(module: ModuleType, name: str, target: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        flows = ", ".join(name for name, value in vars(module).items() if isinstance(value, Flow)) or "none"
        raise FlowError(f"{target!r}: {module.__name__} has no {name!r}; the flows in it: {flows}") from None
