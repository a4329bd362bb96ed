"""What tells one boot of a machine from another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spillable_stream.storage import boot


def test_every_process_of_a_boot_names_it_the_same() -> None:
    program = "from spillable_stream.storage.boot import boot_id; print(boot_id().hex())"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert said.stdout.strip() == boot.boot_id().hex() and len(boot.boot_id()) == 16


def test_a_machine_that_names_no_boot_has_one_name_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    found = {boot.boot_id.__wrapped__() for _ in range(3)}
    assert len(found) == 1 and {len(name) for name in found} == {16}
