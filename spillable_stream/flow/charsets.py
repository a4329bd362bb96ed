"""Character sets by the names that Flume's files give them: Python's names, and some that only Java has."""

from __future__ import annotations

import codecs
import re

from spillable_stream.errors import OptionError
from spillable_stream.shown_value import shown

__all__ = ["charset_name"]

_WINDOWS = re.compile(r"(?:x-)?windows-(\d+)j?", re.IGNORECASE)
_JAVAS = {"windows-31j": "cp932", "x-big5-hkscs": "big5hkscs", "x-johab": "johab", "x-macroman": "mac_roman"}


def charset_name(given: str) -> str:
    """Return Python's name of a character set.

    Raises:
        OptionError: there is none of this name, or it is not one of text: Python calls `hex` a codec, too.
    """
    windows = _WINDOWS.fullmatch(given)
    for name in (given, _JAVAS.get(given.lower(), ""), f"cp{windows[1]}" if windows else ""):
        try:
            found = codecs.lookup(name)
        except (LookupError, ValueError):
            continue
        if found._is_text_encoding:
            return found.name
    raise OptionError(f"there is no character set {shown(given)}; give one such as UTF-8 or ISO-8859-1")
