"""The verbs by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spillable_stream.cli.verbs import Verbs, import_verbs


def test_each_verb_has_its_name_and_a_heading_and_is_built_once() -> None:
    verbs = Verbs()
    assert len(verbs) == len([*verbs]) and "put" in verbs and "fly" not in verbs
    for name, command in verbs.items():
        assert command.name == name and command.rich_help_panel, name
        assert verbs[name] is command


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [
        ([], {"put", "describe", "groups", "flow_agent"}),
        (["--help"], {"put", "describe", "groups", "flow_agent"}),
        (["help", "put"], {"put", "describe", "groups", "flow_agent"}),
        (["stats", "c"], {"describe"}),
        (["groups", "list", "put"], {"groups"}),
        (["fly"], set()),
        (["--version"], set()),
    ],
)
def test_a_call_imports_its_verb_and_arrow_before_it_begins(arguments: list[str], imported: set[str]) -> None:
    program = f"""
import sys
from spillable_stream.cli.verbs import import_verbs
import_verbs({arguments})
print(*sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    some = {"put", "describe", "groups", "flow_agent"}
    assert some & {name.rpartition(".")[2] for name in found if name.startswith("spillable_stream.cli.")} == imported
    assert ("pyarrow" in found) == bool(imported)


def test_an_unknown_name_is_left_to_the_command_line() -> None:
    import_verbs(["fly"])
    with pytest.raises(KeyError):
        Verbs()["fly"]
