"""`docs/benchmarks.md` and `docs/benchmarks.json`: each benchmark writes its own section and leaves the others."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

__all__ = ["DIRECTORY", "figures_of", "machine", "today", "write_section"]

DIRECTORY = Path(__file__).parent.parent / "docs"
_ORDER = (
    *("targets", "limits", "sustained", "put", "slow-disks", "end-to-end", "memory", "producer", "flow", "replay"),
    *("retention", "footprint", "growth", "peers", "objects", "workers", "latency"),
    *("spark", "spark-source", "spark-sink", "spark-objects", "spark-latency", "spark-start"),
)
_DOCUMENT, _NUMBERS = "benchmarks.md", "benchmarks.json"
_BEGIN, _END = "<!-- benchmark: {} -->", "<!-- end -->"
_TITLE = """# Benchmarks

Every section is written by the command that it names, on the machine that it names. Figures are medians; what is
compared ran in turn, round by round, and a ratio is the median of the rounds' own ratios.
"""


def machine() -> str:
    """Return what the figures depend on."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{today()}: {os.cpu_count()} cores ({_processor()}), {memory_gib:.0f} GiB of memory, "
        f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}, Python {platform.python_version()}."
    )


def today() -> str:
    """Return the date, as 2026-12-31."""
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def figures_of(name: str, directory: Path) -> dict[str, Any]:
    """Return what the JSON file keeps of a section; nothing if it has none."""
    found: dict[str, Any] = _known(directory / _NUMBERS).get(name, {})
    return found


def _known(numbers: Path) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(numbers.read_text()) if numbers.exists() else {}
    return known


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def write_section(name: str, text: str, figures: dict[str, Any], directory: Path = DIRECTORY) -> None:
    """Replace a section of the document, or add it, and its figures in the JSON file.

    Args:
        name: the section's name.
        text: Markdown, with its heading.
        figures: what the JSON file keeps under that name.
        directory: where both files are.
    """
    document, numbers = directory / _DOCUMENT, directory / _NUMBERS
    sections = _sections(document.read_text()) if document.exists() else {}
    sections[name] = text.strip()
    ordered = sorted(sections, key=lambda n: _ORDER.index(n) if n in _ORDER else len(_ORDER))
    parts = [f"{_BEGIN.format(n)}\n{sections[n]}\n{_END}\n" for n in ordered]
    _replace(numbers, json.dumps(dict(sorted({**_known(numbers), name: figures}.items())), indent=1) + "\n")
    _replace(document, "\n".join([_TITLE, *parts]))


def _replace(path: Path, text: str) -> None:
    """Write a file so that it has its old text or its new one, whenever the run is cut off."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def _sections(document: str) -> dict[str, str]:
    """Return the sections of the document, by name."""
    found = re.findall(r"^<!-- benchmark: (\S+) -->\n(.*?)\n<!-- end -->$", document, re.DOTALL | re.MULTILINE)
    return dict(found)
