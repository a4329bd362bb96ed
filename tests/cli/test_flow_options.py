from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spillable_stream import Channel, OptionError
from spillable_stream.cli.flow_options import headers, pairs


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        (["a=b", "c=d=e", "f="], {"a": "b", "c": "d=e", "f": ""}),
        (["a", "b=1", "b=2"], {"a": "", "b": "2"}),
    ],
)
def test_options_are_keys_with_values(given: list[str] | None, expected: dict[str, str]) -> None:
    assert pairs(given) == expected


@pytest.mark.parametrize("given", ["a", "=b", ""])
def test_a_header_has_a_name_and_a_value(given: str) -> None:
    assert headers(["a=b", "c="]) == {"a": "b", "c": ""} and headers(None) == {}
    with pytest.raises(OptionError, match=f"^'{given}' is not a header with a value: write HEADER=VALUE$"):
        headers(["a=b", given])


@pytest.mark.parametrize(
    "call",
    [
        "validate -f f.conf",
        "validate -f f.conf --json",
        "graph -f f.conf --json",
        "test f.toml",
        "test f.toml --json",
        "agent -f f.conf -n a1",
        "tap c",
        "send c",
        "send -f f.conf -n a1 --source r1",
    ],
)
def test_without_the_packages_of_flows_a_verb_says_what_to_install(call: str, tmp_path: Path) -> None:
    (tmp_path / "f.conf").touch()
    Channel(tmp_path / "c", minimum_required_space=0).close()
    without = "import sys; sys.modules['numpy'] = None; import spillable_stream.__main__ as entry; entry.main()"
    command = [sys.executable, "-c", without, *call.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode in (1, 2), "an agent of which nothing runs ends with 1"
    said = done.stdout if "--json" in call else done.stderr
    assert "the flow needs numpy: pip install 'spillable-stream[flow]'" in said and "Traceback" not in done.stderr
