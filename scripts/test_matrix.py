"""Run the tests in every cell of the matrix: a Spark and a Python, each pair in a virtual environment of its own.

python scripts/test_matrix.py [--pythons "3.11 3.13"] [--tests tests/spark] [--without-slow] [--jobs N] [CELL ...]

A cell is a file requirements-matrix/sparkX.Y-pyA.B.txt, whose pins replace those of requirements-dev.txt. Its
environment is kept in .matrix/CELL. Python A.B is $PYTHON_A_B, or pythonA.B in PATH, or pyenv's newest. One that is
missing is a failure, unless --pythons leaves it out. The exit status is 0 if every cell asked for passed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CELLS = ROOT / "requirements-matrix"
ENVIRONMENTS = ROOT / ".matrix"
MARKED = "not crash and (spark or not slow)"  # all of Spark's, and else as `make test`
FAST = "not crash and not slow"
ROW = "{:18} {:>8} {:>8} {:>8} {:>7} {:>7} {:>8} {:>8}"


class CellError(Exception):
    """A cell that could not be tested, and why."""


def main() -> int:
    """Test the cells and print a table; return the exit status."""
    cells = sorted(path.stem for path in CELLS.glob("*.txt"))
    parser = argparse.ArgumentParser(description="Run the tests on every Spark and Python that is supported.")
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"default: {' '.join(cells)}")
    parser.add_argument("--pythons", default="", help='only the cells of these, such as "3.11 3.13"')
    parser.add_argument("--tests", default="", help='only these, such as "tests/spark tests/test_docs.py"')
    parser.add_argument("--without-slow", action="store_true", help="leave out Spark's slow tests, too")
    parser.add_argument("--jobs", default="2", help="pytest processes; each has a Spark of its own (default: 2)")
    given = parser.parse_args()
    if unknown := set(given.cells) - set(cells):
        parser.error(f"there is no cell {', '.join(unknown)}; the cells are {', '.join(cells)}")
    pythons = given.pythons.replace(",", " ").split()
    wanted = [c for c in given.cells or cells if not pythons or python_version(c) in pythons]
    if not wanted:
        parser.error(f"no cell has Python {given.pythons}; the cells are {', '.join(cells)}")

    rows, status = [], 0
    for cell in wanted:
        print(f"\n== {cell}", flush=True)
        try:
            passed, row = tested(cell, given.tests.split(), given.jobs, FAST if given.without_slow else MARKED)
        except CellError as e:
            print(f"{cell}: {e}", file=sys.stderr, flush=True)
            passed, row = False, f"{cell:18} {e}"
        status |= not passed
        rows.append(row)
    print("\n" + ROW.format("cell", "python", "spark", "pyarrow", "passed", "failed", "skipped", "seconds"))
    print("\n".join(rows))
    if left_out := [c for c in cells if c not in wanted]:
        print(f"left out, as asked: {', '.join(left_out)}")
    return int(status)


def tested(cell: str, tests: list[str], jobs: str, marked: str) -> tuple[bool, str]:
    """Run the tests with certain marks in a cell; return whether it passed, and its row of the table."""
    environment = ENVIRONMENTS / cell
    python = installed(cell, environment)
    report = environment / "report.xml"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    command = [python, "-m", "pytest", "-q", "-m", marked, *tests, "-n", jobs, "--dist", "loadfile"]
    command.append(f"--junitxml={report}")
    done = subprocess.run(command, cwd=ROOT, env=clean_environment())
    if not report.exists():
        raise CellError(f"pytest ended with status {done.returncode} and no report")
    suite = next(ET.parse(report).getroot().iter("testsuite")).attrib
    failed = int(suite["failures"]) + int(suite["errors"])
    skipped = int(suite["skipped"])
    passed = int(suite["tests"]) - failed - skipped
    pins = requirements(cell)
    versions = (pins[name].partition("==")[2] for name in ("pyspark", "pyarrow"))
    row = ROW.format(cell, python_version(cell), *versions, passed, failed, skipped, round(time.monotonic() - began))
    return done.returncode == 0 and passed > 0, row


def installed(cell: str, environment: Path) -> Path:
    """Return the interpreter of a cell's environment, which is created anew when its pins changed."""
    python, wanted, done = (environment / name for name in ("bin/python", "wanted.txt", "installed.txt"))
    pins = "".join(f"{pin}\n" for pin in requirements(cell).values())
    if not done.exists() or done.read_text() != pins:
        base = interpreter(python_version(cell))
        shutil.rmtree(environment, ignore_errors=True)
        run(base, "-m", "venv", environment)
        wanted.write_text(pins)
        run(python, "-m", "pip", "install", "-q", "-r", wanted)
        run(python, "-m", "pip", "check")
        wanted.rename(done)
    package = ["--no-deps", "--no-build-isolation", "--config-settings", "editable_mode=compat", "-e", ROOT]
    run(python, "-m", "pip", "install", "-q", *package)
    return python


def requirements(cell: str) -> dict[str, str]:
    """Return the pins of a cell by the name of what they pin: its own, and else those of requirements-dev.txt."""
    pins = {}
    for path in (ROOT / "requirements-dev.txt", CELLS / f"{cell}.txt"):
        lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
        pins.update({re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower(): line for line in lines if line})
    return pins


def python_version(cell: str) -> str:
    """Return "3.12" of "spark4.3-py3.12"."""
    return cell.rpartition("-py")[2]


def interpreter(version: str) -> str:
    """Return an interpreter of a version, such as "3.12"."""
    variable = f"PYTHON_{version.replace('.', '_')}"
    candidates = [os.environ.get(variable, ""), f"python{version}"]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True).stdout.strip()
        found = Path(root, "versions").glob(f"{version}.*/bin/python")
        candidates += map(
            str, sorted(found, key=lambda p: [int(n) for n in re.findall(r"\d+", p.parts[-3])], reverse=True)
        )
    for candidate in filter(shutil.which, filter(None, candidates)):  # pyenv's shims are in PATH and may not work
        ask = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(ask, capture_output=True, text=True).stdout.strip() == version:
            return candidate
    raise CellError(f"no Python {version} was found: install it, say where it is with {variable}, or leave it out")


def run(*command: str | Path) -> None:
    """Run a command that prepares a cell."""
    if subprocess.run(command, env=clean_environment()).returncode:
        raise CellError(f"failed: {' '.join(map(str, command))}")


def clean_environment() -> dict[str, str]:
    """Return the environment without what would bring in another Spark or Python than the cell's."""
    others = {"SPARK_HOME", "PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    return {k: v for k, v in os.environ.items() if k not in others}


if __name__ == "__main__":
    sys.exit(main())
