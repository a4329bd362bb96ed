"""Any events, for tests of properties."""

from __future__ import annotations

from hypothesis import strategies as st

from spillable_stream import Event

__all__ = ["EVENTS"]

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
EVENTS = st.builds(Event, st.binary(max_size=20), st.dictionaries(_TEXT, st.one_of(st.none(), _TEXT), max_size=3))
