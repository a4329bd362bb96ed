"""Tables: one of every comparison, and one of the targets."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rounds import Comparison
from benchmarks.targets import Outcome, Target, beside

__all__ = ["comparison_table", "failures", "markdown", "missed", "number", "targets_table"]


def number(value: float) -> str:
    """Return a number with as many digits as mean something."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:,.1f}" if size >= 10 else f"{value:.2f}"


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Return a Markdown table whose cells are as wide as their columns, so that it is a table in a terminal too.

    Args:
        head: the columns' names.
        lines: the cells.
        right: for each column whether it holds numbers.
    """
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]

    def row(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = ("-" * (w - 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True))
    return "\n".join([row(head), f"| {' | '.join(rule)} |", *map(row, lines)])


def comparison_table(found: Comparison) -> str:
    """Return the medians of everybody's figures, and their ratios to the floor's."""
    figures = found.figures
    head, right = [""], [False]
    for figure in figures:
        unit = found.unit_of(figure)
        head += [f"{figure.removesuffix(f', {unit}')}, {unit}".removesuffix(", ")] + ["of the floor"] * _has_floor(
            found, figure
        )
        right += [True] + [True] * _has_floor(found, figure)
    lines = []
    for name in found.contestants:
        cells = [name]
        for figure in figures:
            known = found.has(name, figure)
            cells.append(number(found.median(name, figure)) if known else "")
            if _has_floor(found, figure):
                cells.append(f"{found.ratio(name, figure, found.floor):.2f} x" if known else "")
        lines.append(cells)
    return markdown(head, lines, right)


def _has_floor(found: Comparison, figure: str) -> bool:
    return found.has(found.floor, figure)


def failures(found: Comparison) -> str:
    """Return what could not be measured, and why, as a list; nothing if all was."""
    return "\n".join(f"- {name}: not measured; {why}" for name, why in found.failures.items())


def targets_table(outcomes: Sequence[Outcome]) -> str:
    """Return a line for every target: what was reached, beside what, and whether that is enough."""
    head = ("target", "aim", "reached", "floor, or beside", "", "ratio", "")
    return markdown(head, [_target_line(o) for o in outcomes], (False, True, True, False, True, True, False))


def _target_line(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.target.what,
        _aim(outcome.target, outcome.unit),
        _with_unit(outcome.reached, outcome.unit),
        outcome.beside,
        _with_unit(outcome.beside_value, outcome.unit),
        _beside(outcome),
        outcome.verdict,
    )


def _beside(outcome: Outcome) -> str:
    value = outcome.ratio if outcome.target.most_above is None else outcome.above
    return "" if value is None else beside(value, outcome.target, outcome.unit)


def _with_unit(value: float | None, unit: str) -> str:
    return "" if value is None else f"{number(value)} {unit}".strip()


def _aim(target: Target, unit: str) -> str:
    if target.most_above is not None:
        return f"at most +{_with_unit(target.most_above, unit)}"
    if target.most is not None:
        return f"at most {_with_unit(target.most, unit)}"
    least = target.least or 0.0
    return f"at least {least:.2f} x" if target.against else f"at least {_with_unit(least, unit)}"


def missed(outcomes: Sequence[Outcome]) -> str:
    """Return which targets fall short, and beside whom, in lines."""
    lines = [f"- {o.target.what}: {o.verdict}{_short(o)}" for o in outcomes if o.verdict != "met"]
    met = sum(o.verdict == "met" for o in outcomes)
    return "\n".join([f"{met} of {len(outcomes)} targets are met." + (" These are not:\n" if lines else ""), *lines])


def _short(outcome: Outcome) -> str:
    if outcome.ratio is None or not outcome.target.against:
        return f", {_with_unit(outcome.reached, outcome.unit)}" if outcome.reached is not None else ""
    many = len(outcome.target.against) > 1
    return f", {_beside(outcome)}" + (f"; too near: {'; '.join(outcome.short)}" if many else "")
