"""Writes what the documentation says of a flow's components and findings.

    python scripts/make_flow_docs.py

A test compares the files with what this makes of the tables in `spillable_stream.flow.configuration`.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from spillable_stream.flow.configuration.channel_options import OURS
from spillable_stream.flow.configuration.findings import CODES
from spillable_stream.flow.configuration.options import ComponentType, Kind, Property
from spillable_stream.flow.configuration.registry import TYPES
from spillable_stream.options import OPTIONS

ROOT = Path(__file__).parents[1]
_FINDINGS = re.compile(r"(<!-- findings -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_COMPONENTS = re.compile(r"(<!-- components -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_short = runpy.run_path(str(ROOT / "scripts" / "make_option_docs.py"))["short"]
_OPTIONS = {option.name: f"{option.doc} {OURS}" for option in OPTIONS}  # docs/options.md has these
_TITLES = {
    Kind.SOURCE: "Sources",
    Kind.INTERCEPTOR: "Interceptors",
    Kind.SERIALIZER: "Serializers of regex_extractor",
    Kind.SELECTOR: "Channel selectors",
    Kind.CHANNEL: "Channels",
    Kind.PROCESSOR: "Sink processors",
    Kind.SINK: "Sinks",
    Kind.CONFIG_FILTER: "Config filters",
}


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file that is made in parts, and its text."""
    page = ROOT / "docs" / "flow.md"
    yield page, _FINDINGS.sub(lambda m: f"{m[1]}{findings()}\n{m[3]}", page.read_text())
    page = ROOT / "docs" / "flow_components.md"
    yield page, _COMPONENTS.sub(lambda m: f"{m[1]}{components()}{m[3]}", page.read_text())


def findings() -> str:
    """Return a Markdown table of all findings."""
    rows = ["| finding | severity | meaning |", "|---|---|---|"]
    rows += [f"| `{code}` | {severity} | {meaning} |" for code, (severity, meaning) in CODES.items()]
    return "\n".join(rows)


def components() -> str:
    """Return the sections of all types that are supported."""
    parts = []
    for kind, title in _TITLES.items():
        parts.append(f"## {title}\n\n")
        parts += [section(known) for known in TYPES if known.kind is kind and known.supported]
    return "".join(parts)


def section(known: ComponentType) -> str:
    """Return the section of a type: its names, and a table of its properties."""
    names = f"Also `{'`, `'.join(known.java_names)}`.\n\n" if known.java_names else ""
    rows = [
        f"| `{p.name.replace('*', 'NAME')}` | {_default(p)} | {_cell(_short(p.range))} | {_cell(p.doc)} |"
        for p in known.properties
        if _OPTIONS.get(p.name) != p.doc
    ]
    head = "| property | default | value | meaning |\n|---|---|---|---|\n"
    table = head + "\n".join(rows) + "\n\n" if rows else "It has no properties.\n\n"
    if own := [f"`{p.name}`" for p in known.properties if _OPTIONS.get(p.name) == p.doc]:
        table += f"These [options of a channel](options.md#of-a-channel) are properties, too: {', '.join(own)}.\n\n"
    old = ", ".join(f"`{name}` for `{new}`" for name, new in known.renamed.items())
    return f"### {_TITLES[known.kind].partition(' of ')[0].rstrip('s')}: {known.alias}\n\n{names}{table}" + (
        f"Old names that still work: {old}.\n\n" if old else ""
    )


def _default(p: Property) -> str:
    if p.required:
        return "required"
    if p.default is None or p.default == () or p.default == {} or p.default == "":
        return ""
    shown = str(p.default).lower() if isinstance(p.default, bool) else str(p.default)
    return f"`{shown}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for path, made in files():
        path.write_text(made)
