"""Which calls ask for an object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from spillable_stream.cli import app
from spillable_stream.json_option import wants_object


def verbs() -> Iterator[tuple[str, Any]]:
    """Every verb that has ``--json``."""
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        for verb in getattr(command, "commands", {"": command}).values():
            for parameter in verb.params:
                if "--json" in parameter.opts:
                    yield name, parameter


def test_it_agrees_with_every_verb() -> None:
    found = {(name, wants_object([name, "c", "--json"]), parameter.name == "as_json") for name, parameter in verbs()}
    assert all(by_arguments == by_verb for _, by_arguments, by_verb in found)
    assert {name for name, is_wanted, _ in found if not is_wanted} == {"take", "tail"} and len(found) > 10


@pytest.mark.parametrize("call", ["", "stats c", "stats -- --json", "stats --jsonl", "-- --json"])
def test_a_call_without_the_option_asks_for_none(call: str) -> None:
    assert not wants_object(call.split())
