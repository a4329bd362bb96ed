"""Print what the channel does beside what the machine and other products can do: ``make bench``."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from benchmarks import pictures
from benchmarks.document import DIRECTORY, machine, today, write_section
from benchmarks.parts import METHOD, NOT_CLAIMED, PARTS, Part
from benchmarks.peers.rows import versions
from benchmarks.report import comparison_table, failures, markdown, missed, targets_table
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
        asked: the names of the parts to measure.
        parts: the comparisons of each part.
        broken: which parts ended early, and why.
        took_seconds: how long each part took that is at its end.
    """

    plan: Plan
    asked: tuple[str, ...] = ()
    parts: dict[str, list[Comparison]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    took_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, Comparison]:
        """All comparisons by name."""
        return {c.name: c for part in self.parts.values() for c in part}

    @property
    def seconds(self) -> float:
        """How long the parts took that are at their end."""
        return sum(self.took_seconds.values())

    @property
    def whole(self) -> bool:
        """Whether it is one of all parts, but Spark's."""
        return set(PARTS) <= set(self.asked)

    @property
    def all_of_spark(self) -> bool:
        """Whether it is one of all of Spark's parts."""
        return set(SPARK_PARTS) <= set(self.asked)

    def missing(self, parts: Iterable[str]) -> list[str]:
        """Return which of these parts are not at their end."""
        return [name for name in parts if name not in self.took_seconds]

    def outcomes(self) -> list[Outcome]:
        """Return what became of the targets; of all of them in a run of all parts, else of those that were measured."""
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


Keep = Callable[[Run, str], None]
"""What gets a run, and the name of the part that has something new, or is at its end."""


def run(names: Iterable[str], plan: Plan, directory: Path, keep: Keep = lambda *_: None) -> Run:
    """Measure these parts, and print and keep each table as soon as it is known.

    Args:
        names: of `PARTS` and `SPARK_PARTS`.
        plan: how much to measure.
        directory: where to write; its disk is measured.
        keep: called after each group, and at the end of each part.
    """
    found, began = Run(plan, tuple(names)), time.monotonic()
    for name in found.asked:
        found.parts[name], part_began = [], time.monotonic()
        print(f"\n## {_part(name).title}", flush=True)
        try:
            for group in _part(name).groups(plan, directory):
                deadline = math.inf if name in SPARK_PARTS else began + plan.limit_seconds
                comparison = measure(group, plan.rounds, directory, _say, deadline)
                found.parts[name].append(comparison)
                print(f"\n{_comparison(comparison, '###')}", flush=True)
                keep(found, name)
        except Exception as e:  # such as a full disk: the other parts may have what they need
            found.broken[name] = f"{type(e).__name__}: {e}"
            print(f"\n{name} ended early: {found.broken[name]}", flush=True)
        found.took_seconds[name] = time.monotonic() - part_began
        keep(found, name)
    return found


def _part(name: str) -> Part:
    return PARTS[name] if name in PARTS else SPARK_PARTS[name]


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def _comparison(found: Comparison, heading: str) -> str:
    parts = [f"{heading} {found.title}", comparison_table(found), failures(found)]
    return "\n\n".join(part for part in parts if part)


def write(found: Run, name: str, directory: Path, around: str) -> None:
    """Write the section of a part as far as it was measured, its pictures, and the targets in a run of all parts.

    Args:
        found: the run.
        name: the part.
        directory: where the document is.
        around: on which machine, and when.
    """
    figures = {c.name: c.as_dict() for c in found.parts[name]}
    write_section(name, _section(name, _part(name), found), figures, directory)
    if figures and _part(name).pictures and not pictures.draw_apart(name, directory, _PICTURES):
        _say(f"the pictures of {name} are not drawn")  # what is measured next does not need them
    if found.whole and name in PARTS:
        text = _targets("", found.command, PARTS, found.outcomes(), found, around)
        method = f"### Method\n\n{METHOD}\n\n### What is not claimed\n\n{NOT_CLAIMED}"
        write_section(_TARGETS, f"{text}\n\n{method}", _kept(found.outcomes(), around), directory)
    if found.all_of_spark and name in SPARK_PARTS:
        results = found.spark_outcomes()
        text = _targets("Spark: ", "make bench-spark", SPARK_PARTS, results, found, around)
        write_section(_SPARK, text, _kept(results, around), directory)


def _targets(prefix: str, command: str, parts: Iterable[str], results: list[Outcome], found: Run, around: str) -> str:
    """Return the text about targets, and about the parts that they are of.

    Args:
        prefix: what its titles begin with.
        command: what measures these parts.
        parts: their names.
        results: what became of the targets.
        found: the run.
        around: on which machine, and when.
    """
    title = f"{prefix}what is aimed at, and what is reached"
    took = [(name, f"{found.took_seconds[name]:.0f}") for name in parts if name in found.took_seconds]
    return "\n\n".join(
        [
            f"## {title[0].upper()}{title[1:]}",
            f"`{command}`, {found.seconds:.0f} s. {around}",
            *_cut_off(found.missing(parts)),
            targets_table(results),
            missed(results),
            f"### {prefix}{'how' if prefix else 'How'} long each part took",
            markdown(("part", "seconds"), took, (False, True)),
        ]
    )


def _cut_off(missing: list[str]) -> list[str]:
    """Return in a paragraph what a run has not measured, if anything."""
    if not missing:
        return []
    return [
        f"**This run was cut off, or is under way.** It did not come to the end of: {', '.join(missing)}. What is "
        "below of these parts, and does not say that it is unfinished, is of another run. Their targets that are not "
        "of this run are *not measured*."
    ]


def _kept(results: list[Outcome], around: str) -> dict[str, object]:
    """Return what the JSON file keeps of outcomes."""
    return {"outcomes": [{**asdict(o), "verdict": o.verdict} for o in results], "machine": around}


def _section(name: str, part: Part, found: Run) -> str:
    rounds = max((len(c.rounds) for c in found.parts[name]), default=0)
    shown = [f"![{text}]({_PICTURES}/{file})" for file, text in part.pictures]
    ended = [f"It ended early: {found.broken[name]}"] if name in found.broken else []
    if name not in found.took_seconds:
        ended = ["**Unfinished:** the run was cut off, or is under way. More is to come after what is here."]
    tables = [_comparison(c, "###") for c in found.parts[name]]
    head = [f"## {part.title}", f"`{found.made_by(name)}`, {today()}, up to {rounds} rounds. {part.method}"]
    return "\n\n".join([*head, *ended, *shown, *tables])


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    choices = [*PARTS, _SPARK, *SPARK_PARTS]
    parser.add_argument("names", nargs="*", default=list(PARTS), metavar="|".join(choices), help="all but Spark's")
    parser.add_argument("--full", action="store_true", help="all combinations, longer")
    parser.add_argument("--rounds", type=int, help="how often each contestant runs")
    parser.add_argument("--seconds", type=float, help="for how long, each time; longer ones change in proportion")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="where to write; its disk is measured")
    parser.add_argument("--write", action="store_true", help="write the document, its figures and its pictures")
    parser.add_argument("--docs", type=Path, default=DIRECTORY, help="where the document is; docs by default")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(choices):
        parser.error(f"there is no {sorted(unknown)[0]!r}; there are {', '.join(choices)}")
    document = arguments.docs if arguments.write else None
    plan = _plan(arguments.full, arguments.rounds, arguments.seconds)
    _run_all(arguments.names, plan, arguments.directory, document)


def _plan(full: bool, rounds: int | None, seconds: float | None) -> Plan:
    plan = _FULL if full else Plan()
    if rounds is not None:
        plan = replace(plan, rounds=rounds)
    if seconds is not None:
        plan = replace(plan, seconds=seconds, sustained_seconds=plan.sustained_seconds * seconds / plan.seconds)
    return plan


def _run_all(names: list[str], plan: Plan, directory: Path, document: Path | None) -> None:
    around = f"{machine()} Load when it began: {os.getloadavg()[0]:.1f}. {versions()}"
    print(around)
    wanted = [name for name in PARTS if name in names]
    wanted += [name for name in SPARK_PARTS if name in names or _SPARK in names]

    def keep(found: Run, name: str) -> None:
        if document:
            write(found, name, document, around)

    found = run(wanted, plan, directory, keep)
    results = found.outcomes() + found.spark_outcomes()
    if results:
        print("\n\n".join(["\n## Targets", targets_table(results), missed(results), f"{found.seconds:.0f} s."]))


if __name__ == "__main__":
    try:
        with exit_on_sigterm():
            main()
    except KeyboardInterrupt:
        sys.exit("cut off; with --write, what was measured is written")
