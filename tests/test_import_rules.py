"""Imports go one way (see docs/architecture.md); a rule broken here is a wall broken in the house."""

import ast
from pathlib import Path

import pytest

import penstock

ROOT = Path(penstock.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# Each room and the rooms it may import from; nothing may import from the right of itself.
ROOMS = {
    "errors": set(),
    "clock": set(),
    "schema": {"errors"},
    "ordering": {"errors"},
    "state": {"clock", "errors", "ordering"},
    "rates": {"errors"},
    "costs": set(),
    "connectors": {"clock", "errors", "rates", "schema"},
    "operators": {"errors", "ordering", "schema"},
    "elasticity": {"errors"},
    "runtime": {"clock", "connectors", "errors", "flow", "observe", "operators", "ordering"},
    "flow": {"connectors", "errors", "operators", "schema"},
    "observe": set(),
    "plan": {"flow", "operators"},
    "engines": {"clock", "connectors", "costs", "elasticity", "errors", "flow", "observe", "operators"}
    | {"ordering", "plan", "rates", "runtime", "schema", "state"},
    "sources": {"connectors", "errors", "rates"},
    "sinks": {"connectors", "errors"},
    "windows": {"errors", "operators"},
    "spark": {"flow"},
}
ONLY_IN = {
    "pyspark": ("engines/spark/", "connectors/spark.py", "connectors/spark_session.py"),
    "threading": ("runtime/", "ordering/"),
    "time": ("clock.py",),
}


def imports(path: Path) -> list[str]:
    """The modules that a file imports when it is imported; those for type checkers alone don't count."""
    found = []
    for node in ast.walk(_without_type_checking(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


def _without_type_checking(tree: ast.Module) -> ast.Module:
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    return tree


def top_level_imports(path: Path) -> list[str]:
    """Imports inside functions are lazy on purpose: `Flow.run` needs engines, which need flows."""
    tree = _without_type_checking(ast.parse(path.read_text()))
    found = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_import_only_what_they_may(path):
    room = room_of(path)
    if room not in ROOMS:
        pytest.skip("the front door (the package, the command line, the demo, testing) sees everything")
    for module in top_level_imports(path):
        if module.startswith("penstock."):
            other = module.split(".")[1]
            assert other == room or other in ROOMS[room], f"{room} may not import {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
@pytest.mark.parametrize("module", ONLY_IN)
def test_some_modules_have_one_door(path, module):
    place = str(path.relative_to(ROOT))
    if any(place.startswith(allowed) for allowed in ONLY_IN[module]):
        return
    assert module not in {name.split(".")[0] for name in imports(path)}, f"{place} may not import {module}"


def test_the_rules_see_a_breach(tmp_path):
    breach = tmp_path / "breach.py"
    breach.write_text("import threading\ndef f():\n    import pyspark.sql\n")
    assert imports(breach) == ["threading", "pyspark.sql"]
