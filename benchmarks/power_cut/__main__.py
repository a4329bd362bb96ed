"""Cut the power under this channel and other products, and print what was left: ``make power-cut-table``."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.power_cut import machine
from benchmarks.power_cut.cycle import run_cycle
from benchmarks.power_cut.ledger import Verdict
from benchmarks.power_cut.machine import KINDS
from benchmarks.power_cut.rows import ROWS, Row, missing
from benchmarks.power_cut.table import cell, page, table
from spillable_stream.termination import exit_on_sigterm

_PAGE = Path(__file__).parents[2] / "docs" / "power_cut_table.md"


def run(rows: Sequence[Row], cycles: int, seed: int) -> dict[str, dict[str, list[Verdict]]]:
    """Run all cycles of these rows, a round of all of them at a time, and say how far it is."""
    results: dict[str, dict[str, list[Verdict]]] = {row.name: {kind: [] for kind in KINDS} for row in rows}
    for i in range(cycles):
        for row in rows:
            for kind in KINDS:
                results[row.name][kind].append(run_cycle(row, kind, f"{seed} {i}"))
            said = " | ".join(cell(verdicts) for verdicts in results[row.name].values())
            print(f"{i + 1}/{cycles} {row.name}: {said}", file=sys.stderr, flush=True)
    return results


def main() -> int:
    """Do what the command line says; return 2 where that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.power_cut", description=__doc__)
    parser.add_argument("--cycles", type=int, default=5, help="power cuts per product, mode and file system")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="NAME", help=f"rows whose name has this in it: {', '.join(_names())}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every cut's verdict")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"the page; without --only: docs/{_PAGE.name}")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if (arguments.only or "") in row.name]
    if not rows:
        parser.error(f"no row has {arguments.only!r} in its name: {', '.join(_names())}")
    if why := machine.missing() or missing(rows):
        print(f"power-cut-table: {why}", file=sys.stderr)
        return 2
    results = run(rows, arguments.cycles, arguments.seed)
    print(table(results))
    where = arguments.page or (None if arguments.only else _PAGE)
    if where:
        where.write_text(page(results, arguments.cycles, arguments.seed, datetime.date.today().isoformat()))
    if arguments.json:
        found = {name: {kind: [asdict(v) for v in vs] for kind, vs in kinds.items()} for name, kinds in results.items()}
        arguments.json.write_text(
            json.dumps({"seed": arguments.seed, "kernel": platform.release(), "results": found}, indent=1)
        )
    return 0


def _names() -> list[str]:
    return [row.name for row in ROWS]


if __name__ == "__main__":
    with exit_on_sigterm():
        sys.exit(main())
