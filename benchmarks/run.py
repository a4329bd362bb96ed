"""Print what the channel does beside what the machine and other products can do: ``make bench``."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import pictures
from benchmarks.document import DIRECTORY, machine, write_section
from benchmarks.parts import METHOD, NOT_CLAIMED, PARTS, Part
from benchmarks.peers.rows import versions
from benchmarks.report import comparison_table, failures, missed, targets_table
from benchmarks.rounds import Comparison, Plan, measure
from benchmarks.spark import SPARK_PARTS
from benchmarks.targets import SPARK_TARGETS, TARGETS, Outcome, Target, outcomes
from spillable_stream.termination import exit_on_sigterm

_SPARK = "spark"  # stands for all of Spark's parts
_FULL = Plan(rounds=7, seconds=1.0, full=True, limit_seconds=math.inf)
_PICTURES = "pictures"
_TARGETS = "targets"


@dataclass
class Run:
    """What one run of the program found.

    Args:
        plan: how much was measured.
        parts: the comparisons of each part.
        broken: which parts ended early, and why.
        seconds: how long it took.
    """

    plan: Plan
    parts: dict[str, list[Comparison]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def by_name(self) -> dict[str, Comparison]:
        """All comparisons by name."""
        return {c.name: c for part in self.parts.values() for c in part}

    @property
    def whole(self) -> bool:
        """Whether all parts ran, but Spark's."""
        return set(PARTS) <= set(self.parts)

    @property
    def all_of_spark(self) -> bool:
        """Whether all of Spark's parts ran."""
        return set(SPARK_PARTS) <= set(self.parts)

    def outcomes(self) -> list[Outcome]:
        """Return what became of the targets; of all of them if all parts ran, else of those that were measured."""
        return self._outcomes(TARGETS, everything=self.whole)

    def spark_outcomes(self) -> list[Outcome]:
        """Return what became of Spark's targets, as `outcomes` does."""
        return self._outcomes(SPARK_TARGETS, everything=self.all_of_spark)

    def _outcomes(self, targets: tuple[Target, ...], *, everything: bool) -> list[Outcome]:
        return [o for o in outcomes(self.by_name, targets) if everything or o.reached is not None]

    @property
    def command(self) -> str:
        """What to call for the same."""
        return "make bench-full" if self.plan.full else "make bench"

    def made_by(self, name: str) -> str:
        """Return what to call for the same part."""
        if name in SPARK_PARTS:
            return "make bench-spark" if self.all_of_spark else f"python -m benchmarks.run {name}"
        return self.command if self.whole else f"python -m benchmarks.run {name}"


def run(names: Iterable[str], plan: Plan, directory: Path) -> Run:
    """Measure these parts, and print each table as soon as it is known.

    Args:
        names: of `PARTS` and `SPARK_PARTS`.
        plan: how much to measure.
        directory: where to write; its disk is measured.
    """
    found, began = Run(plan), time.monotonic()
    for name in names:
        found.parts[name] = []
        print(f"\n## {_part(name).title}", flush=True)
        try:
            for group in _part(name).groups(plan, directory):
                deadline = math.inf if name in SPARK_PARTS else began + plan.limit_seconds
                comparison = measure(group, plan.rounds, directory, _say, deadline)
                found.parts[name].append(comparison)
                print(f"\n{_comparison(comparison, '###')}", flush=True)
        except Exception as e:  # such as a full disk: the other parts may have what they need
            found.broken[name] = f"{type(e).__name__}: {e}"
            print(f"\n{name} ended early: {found.broken[name]}", flush=True)
    found.seconds = time.monotonic() - began
    return found


def _part(name: str) -> Part:
    return PARTS[name] if name in PARTS else SPARK_PARTS[name]


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def _comparison(found: Comparison, heading: str) -> str:
    parts = [f"{heading} {found.title}", comparison_table(found), failures(found)]
    return "\n\n".join(part for part in parts if part)


def write(found: Run, directory: Path, around: str) -> None:
    """Write the sections of the parts that were measured, their pictures, and the targets if all parts were.

    Args:
        found: the run.
        directory: where the document is.
        around: on which machine, and when.
    """
    pictures.draw(found.by_name, directory / _PICTURES)
    for name, comparisons in found.parts.items():
        figures = {c.name: c.as_dict() for c in comparisons}
        write_section(name, _section(name, _part(name), found), figures, directory)
    if found.whole:
        results = found.outcomes()
        text = (
            f"## What is aimed at, and what is reached\n\n`{found.command}`, {found.seconds:.0f} s. {around}\n\n"
            f"{targets_table(results)}\n\n{missed(results)}\n\n### Method\n\n{METHOD}\n\n"
            f"### What is not claimed\n\n{NOT_CLAIMED}"
        )
        write_section(_TARGETS, text, _kept(results, around), directory)
    if found.all_of_spark:
        results = found.spark_outcomes()
        text = (
            "## Spark: what is aimed at, and what is reached\n\n"
            f"`make bench-spark`, {found.seconds:.0f} s. {around}\n\n{targets_table(results)}\n\n{missed(results)}"
        )
        write_section(_SPARK, text, _kept(results, around), directory)


def _kept(results: list[Outcome], around: str) -> dict[str, object]:
    """Return what the JSON file keeps of outcomes."""
    return {"outcomes": [{**asdict(o), "verdict": o.verdict} for o in results], "machine": around}


def _section(name: str, part: Part, found: Run) -> str:
    made_by = f"`{found.made_by(name)}`"
    rounds = max((len(c.rounds) for c in found.parts[name]), default=0)
    shown = [f"![{text}]({_PICTURES}/{file})" for file, text in part.pictures]
    ended = [f"It ended early: {found.broken[name]}"] if name in found.broken else []
    tables = [_comparison(c, "###") for c in found.parts[name]]
    head = [f"## {part.title}", f"{made_by}, up to {rounds} rounds. {part.method}"]
    return "\n\n".join([*head, *ended, *shown, *tables])


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    choices = [*PARTS, _SPARK, *SPARK_PARTS]
    parser.add_argument("names", nargs="*", default=list(PARTS), metavar="|".join(choices), help="all but Spark's")
    parser.add_argument("--full", action="store_true", help="all combinations, longer")
    parser.add_argument("--rounds", type=int, help="how often each contestant runs")
    parser.add_argument("--seconds", type=float, help="for how long, each time")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="where to write; its disk is measured")
    parser.add_argument("--write", action="store_true", help="write the document, its figures and its pictures")
    parser.add_argument("--docs", type=Path, default=DIRECTORY, help="where the document is; docs by default")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(choices):
        parser.error(f"there is no {sorted(unknown)[0]!r}; there are {', '.join(choices)}")
    plan = _FULL if arguments.full else Plan()
    given = {name: value for name in ("rounds", "seconds") if (value := getattr(arguments, name)) is not None}
    document = arguments.docs if arguments.write else None
    _run_all(arguments.names, Plan(**{**asdict(plan), **given}), arguments.directory, document)


def _run_all(names: list[str], plan: Plan, directory: Path, document: Path | None) -> None:
    around = f"{machine()} Load when it began: {os.getloadavg()[0]:.1f}. {versions()}"
    print(around)
    wanted = [name for name in PARTS if name in names]
    wanted += [name for name in SPARK_PARTS if name in names or _SPARK in names]
    found = run(wanted, plan, directory)
    results = found.outcomes() + found.spark_outcomes()
    if results:
        print("\n\n".join(["\n## Targets", targets_table(results), missed(results), f"{found.seconds:.0f} s."]))
    if document:
        write(found, document, around)


if __name__ == "__main__":
    with exit_on_sigterm():
        main()
