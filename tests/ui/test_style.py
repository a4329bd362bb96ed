"""Text can be read, in light and in dark."""

from __future__ import annotations

import re

import pytest

from spillable_stream.ui.style import CSS

_LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA


def colours(selector: str) -> dict[str, str]:
    """Return the named colours of a part of the style sheet."""
    block = CSS[CSS.index(selector) :].partition("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("selector", [":root", "body.body--dark"])
@pytest.mark.parametrize(
    ("ink", "ground"),
    [("ink", "ground"), ("ink", "card"), ("soft", "card"), ("soft", "ground"), ("soft", "note-ground"),
     ("ink", "bad-ground"), ("ink", "warn-ground"), ("bad", "bad-ground"), ("warn", "warn-ground"),
     ("good", "note-ground")],
)  # fmt: skip
def test_text_has_enough_contrast(selector: str, ink: str, ground: str) -> None:
    found = colours(selector)
    assert contrast(found[ink], found[ground]) >= _LEAST_CONTRAST


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert "url(" not in CSS and "@import" not in CSS and "http" not in CSS


def test_the_focus_can_be_seen_and_motion_can_be_left_out() -> None:
    assert ":focus-visible" in CSS and "prefers-reduced-motion" in CSS
