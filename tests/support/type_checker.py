"""What a type checker says of a program that uses the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["said_by_mypy"]

ROOT = Path(__file__).parents[2]


def said_by_mypy(source: str, directory: Path) -> list[str]:
    """Return what mypy says of a program, as ``LINE: error: MESSAGE`` or ``LINE: note: MESSAGE``.

    Args:
        source: the program.
        directory: where it may be written.
    """
    (directory / "use.py").write_text(source)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--no-pretty", directory / "use.py"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert "use.py:" in checked.stdout, checked.stdout + checked.stderr
    return [line.partition("use.py:")[2] for line in checked.stdout.splitlines() if "use.py:" in line]
