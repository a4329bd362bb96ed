"""Numbers as people read them: counts, sizes, ages and rates."""

from __future__ import annotations

from spillable_stream.counted import counted

__all__ = ["age_text", "rate_text", "short_text", "size_text"]

_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_AGES = ((86_400, "d"), (3600, "h"), (60, "min"))
_THOUSANDS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**4, "k"))


def size_text(size_bytes: int) -> str:
    """Return a number of bytes, as ``12.5 MiB``."""
    for length, unit in _SIZES:
        if size_bytes >= length:
            return f"{size_bytes / length:,.1f} {unit}"
    return counted(size_bytes, "byte")


def age_text(seconds: float) -> str:
    """Return an age, as ``2.5 h``."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def rate_text(per_second: float) -> str:
    """Return how many a second, as ``1,134/s``; with a decimal where it is below ten."""
    return f"{per_second:,.1f}/s" if 0 < per_second < 9.95 else f"{per_second:,.0f}/s"


def short_text(number: int) -> str:
    """Return a count in six characters at most, as ``9,999``, ``12.3k`` or ``100M``."""
    for length, unit in _THOUSANDS:
        if number >= length:
            value = number / (1000 if unit == "k" else length)  # four digits fit as they are
            return f"{value:.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.1f}{unit}"
    return f"{number:,}"
