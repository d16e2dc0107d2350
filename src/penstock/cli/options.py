"""What `NAME=VALUE` on the command line means: the only parser of options."""

from __future__ import annotations

import ast
from typing import Any

import click

engine_options = click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    envvar="PENSTOCK_OPTION",
    help="An option of the engine, such as threads=4; may be repeated.",
)


def parsed_option(text: str) -> tuple[str, Any]:
    """The name, and the value as the Python literal that it looks like, or as a string.

    >>> parsed_option("threads=4"), parsed_option("master=local[2]")
    (('threads', 4), ('master', 'local[2]'))
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--option takes NAME=VALUE, not {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
