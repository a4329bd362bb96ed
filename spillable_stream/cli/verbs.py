"""The verbs by name, each of which is imported and built when it is looked up: a call has one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import typer

__all__ = ["MARKUP", "Verbs", "import_verbs"]

MARKUP: Any = "markdown"
"""What the help of verbs is written in."""

_VERBS = {
    "Put and take": {"put": "put.put", "take": "consume.take", "tail": "consume.tail", "export": "export.export"},
    "Watch": {
        "stats": "describe.stats",
        "describe": "describe.describe",
        "top": "top.top",
        "ui": "ui.ui",
        "metrics": "metrics.metrics",
    },
    "Configure": {"create": "create.create", "alter": "create.alter", "groups": "groups.groups"},
    "Keep and mend": {
        "backup": "copies.backup",
        "restore": "copies.restore",
        "verify": "examine.verify",
        "repair": "examine.repair",
        "dead-letters": "dead_letters.dead_letters",
        "check-store": "examine.check_store",
    },
    "Flows from Flume's files": {
        "validate": "flow_validate.validate",
        "graph": "flow_graph.graph",
        "test": "flow_test.test",
        "agent": "flow_agent.agent",
        "tap": "flow_events.tap",
        "send": "flow_events.send",
    },
    "This program": {"help": "words.explain", "version": "words.version"},
}
"""The verbs, in the order and under the headings that ``spillable --help`` has, and the module and name of each."""

_HELP = ("help", "-h", "--help")

_PLACES = {name: (heading, place) for heading, verbs in _VERBS.items() for name, place in verbs.items()}


def import_verbs(arguments: Sequence[str]) -> None:
    """Import what a call needs: its verb, or all verbs for the help.

    Arrow with them: an exception of a signal that comes amid its import would become another one.

    Args:
        arguments: those of the call.
    """
    first = arguments[0] if arguments else "help"
    names = _PLACES.keys() if first in _HELP else {first} & _PLACES.keys()
    for name in names:
        _built(name)
    if names:
        import_module("pyarrow")


class Verbs(Mapping[str, Any]):
    """The commands of all verbs."""

    def __getitem__(self, name: str) -> Any:
        return _built(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


@cache
def _built(name: str) -> Any:
    """Return the command of a verb, or of a group of verbs.

    Raises:
        KeyError: there is none.
    """
    heading, place = _PLACES[name]
    module, _, attribute = place.partition(".")
    found = getattr(import_module(f"spillable_stream.cli.{module}"), attribute)
    alone = typer.Typer(rich_markup_mode=MARKUP)
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name, rich_help_panel=heading)
    else:
        alone.command(name, rich_help_panel=heading)(found)
    return typer.main.get_group(alone).commands[name]
