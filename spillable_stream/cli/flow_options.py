"""What the verbs about configurations share: their options, and loading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spillable_stream.cli.app import UNKNOWN, fail
from spillable_stream.cli.arguments import decoded, refuse_empty
from spillable_stream.errors import OptionError, SpillableError
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    from spillable_stream.flow.configuration.model import Loaded

__all__ = [
    "AgentName",
    "ClassMap",
    "ConfigurationFiles",
    "SystemProperties",
    "conf_file_option",
    "headers",
    "loaded_configuration",
    "pairs",
]


def conf_file_option(text: str) -> Any:
    """Return the option ``--conf-file`` with a verb's own help text."""
    return typer.Option("--conf-file", "-f", metavar="FILE", callback=refuse_empty("a file"), help=text)


ConfigurationFiles = Annotated[list[str], conf_file_option("The configuration; of several a later one wins.")]
AgentName = Annotated[
    str | None,
    typer.Option("--name", "-n", metavar="AGENT", callback=decoded, help="One agent; by default all of the files'."),
]
SystemProperties = Annotated[
    list[str] | None, typer.Option("--define", "-D", metavar="KEY=VALUE", help="What ${sys:KEY} stands for.")
]
ClassMap = Annotated[
    list[str] | None, typer.Option("--map", metavar="JAVA=PYTHON", help="A Python class for the name of a Java class.")
]


def pairs(given: list[str] | None) -> dict[str, str]:
    """Return ``KEY=VALUE`` options as a mapping; without a ``=`` the value is empty, as to Java."""
    return {key: value for key, _, value in (text.partition("=") for text in given or ())}


def headers(given: list[str] | None) -> dict[str, str]:
    """Return ``HEADER=VALUE`` options as a mapping.

    Raises:
        OptionError: one names no header, or has no ``=``.
    """
    for text in given or ():
        name, equals, _ = text.partition("=")
        if not name or not equals:
            raise OptionError(f"{shown(text)} is not a header with a value: write HEADER=VALUE")
    return pairs(given)


def loaded_configuration(
    files: list[str], name: str | None, define: list[str] | None, mapped: list[str] | None, as_json: bool
) -> Loaded:
    """Return what the files say, or exit with status 2 if they can't be read.

    Args:
        files: the files.
        name: the agent; None for all.
        define: the options ``-D``.
        mapped: the options ``--map``.
        as_json: whether an error is printed as JSON.
    """
    from spillable_stream.flow.loading import load

    try:
        return load(files, name=name, system=pairs(define), mapped=pairs(mapped))
    except (SpillableError, OSError, ImportError) as e:
        fail(", ".join(files), e, as_json, UNKNOWN)
