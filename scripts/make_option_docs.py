"""Writes what the documentation says of the options: the tables in the pages, and conf/channel.ini.

    python scripts/make_option_docs.py

A test compares the files with what this makes of the table in `spillable_stream.options`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spillable_stream.options import BATCH, CHANNEL, CREATION, OPTIONS, SINK, SOURCE, Option

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONFIGURATION = ROOT / "conf" / "channel.ini"

_TABLE = re.compile(r"(<!-- options: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_COLUMNS = 118

HEAD = """\
# A channel, for `spillable_stream.Channel.from_config("conf/channel.ini")`.
# Options that are left out have the value stored in the channel, at first the default that is shown.

[channel]
# The channel's directory; it is created if it is missing.
path = /tmp/spillable_stream/orders

# As in Flume's configurations: FILE, or SPILLABLEMEMORY, with which memoryCapacity is 10000 unless it is given.
# type = FILE
"""


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file that is made, whole or in parts, and its text."""
    for page in PAGES:
        text = page.read_text()
        if _TABLE.search(text):
            yield page, _TABLE.sub(lambda m: f"{m[1]}{table(m[2])}\n{m[4]}", text)
    yield CONFIGURATION, configuration()


def table(scope: str) -> str:
    """Return a Markdown table of a scope's options; of a batch read, of those that a stream does not have."""
    rows = ["| option | default | value | meaning |", "|---|---|---|---|"]
    shown = [o for o in OPTIONS if scope in o.scopes]
    if scope == BATCH:
        shared = ", ".join(f"`{o.name}`" for o in shown if SOURCE in o.scopes)
        shown = [o for o in shown if SOURCE not in o.scopes]
        rows.insert(0, f"A batch read has, of these, {shared}. Besides it has\n")
    for o in shown:
        rows.append(f"| `{o.name}` | {plain(o.default_in(scope), ',')} | {short(o.range)} | {o.doc} |")
    return "\n".join(rows)


def short(values: str) -> str:
    """Return what is allowed without the units of times and sizes, which docs/options.md lists once."""
    return re.sub(r", or a number with [^;]*", "", values)


def configuration() -> str:
    """Return the configuration file: each option with its meaning, its range and its default."""
    of_channels = [o for o in OPTIONS if {CHANNEL, CREATION} & set(o.scopes)]
    return HEAD + "".join(f"\n{entry(o)}" for o in of_channels)


def entry(option: Option) -> str:
    """Return the lines of one option in the configuration file."""
    meaning = option.doc
    if (default := option.scope_defaults.get(SINK)) is not None:
        meaning += f" The default of a Spark sink is {plain(default)}."
    comments = textwrap.wrap(meaning, _COLUMNS - 2, break_on_hyphens=False)
    value = plain(option.default)
    return (
        "\n".join(f"# {line}" for line in [*comments, f"({option.range})", f"{option.name} = {value}".rstrip()]) + "\n"
    )


def plain(default: Any, thousands: str = "") -> str:
    """Return a default as people write it; nothing for None."""
    match default:
        case None:
            return ""
        case bool():
            return str(default).lower()
        case int():
            return f"{default:{thousands}}"
        case float():
            return f"{default:{thousands}g}" if default < 1e5 else f"{default:{thousands}.0f}"
    return str(default)


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text)
