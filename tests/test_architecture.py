"""Every module is named in docs/architecture.md, and every module that is named there is there."""

import ast
import re
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent
DOCUMENT = Path(__file__).parents[1] / "docs" / "architecture.md"
HEADING = re.compile(r"\| file in `([\w/]+)/` \|")
FILE = re.compile(r"`([\w/]+\.py)`")


def named(document: str) -> set[str]:
    """The modules that a document names: by their path, or by their file name in the table of their folder."""
    found, folder = set(), None
    for line in document.splitlines():
        if heading := HEADING.match(line):
            folder = heading[1].removeprefix("penstock").strip("/")
        elif not line.startswith("|"):
            folder = None
        elif folder is not None:
            first_cell = line.split("|")[1]
            found |= {f"{folder}/{name}".strip("/") for name in FILE.findall(first_cell)}
        found |= {path for path in FILE.findall(line) if "/" in path and not path.startswith("tests/")}
    return found


def heading_of(module: str) -> str:
    folder = module.rpartition("/")[0] or "penstock"
    return f"| file in `{folder}/` | claim |"


def line_for(module: str) -> str:
    claim = (ast.get_docstring(ast.parse((ROOT / module).read_text())) or "…").split("\n")[0]
    return f"| `{module.rpartition('/')[2]}` | {claim} |"


def test_every_module_is_named():
    modules = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if path.name != "__init__.py"}
    missing = sorted(modules - named(DOCUMENT.read_text()))
    told = [f"in the table with the heading {heading_of(module)}\n    {line_for(module)}" for module in missing]
    assert not missing, "docs/architecture.md lacks these lines (say it shorter, if you can):\n" + "\n".join(told)


def test_no_module_is_named_that_is_not_there():
    gone = sorted(name for name in named(DOCUMENT.read_text()) if not (ROOT / name).exists())
    told = [f"{name}, in the table with the heading {heading_of(name)} or in the text" for name in gone]
    assert not gone, "docs/architecture.md names what is not there:\n" + "\n".join(told)


def test_a_name_counts_in_the_table_of_its_folder_only():
    document = """
`wire.py` stands nowhere, `clock/wire.py` by itself.

| file in `engines/spark/` | claim |
|---|---|
| `tasks.py`, `stages.py` | like `doors.py` |

| file in `penstock/` | claim |
|---|---|
| `clock.py` | the real clock |

| file | claim |
|---|---|
| `chain.py` | in which folder? |
"""
    assert named(document) == {"clock/wire.py", "engines/spark/tasks.py", "engines/spark/stages.py", "clock.py"}
