"""Where some bytes occur in the texts of a column, found in the data of all of them at once.

RE2 and Arrow's own search begin anew at each text. Here machine words are compared, a column at a time: bytes that are
as long as two words less one cover a whole aligned word, wherever they are. So a word that is none of the few that
they can cover is passed by, and only what remains is looked at byte by byte.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["first_places", "occurrences"]

_LEAST_BYTES = 64 << 10  # less data is searched sooner text by text
_BYTES_PER_CANDIDATE = 16  # and so is data with more candidates


def occurrences(data: NDArray[np.uint8], sought: bytes) -> NDArray[np.int64] | None:
    """Return where some bytes occur, in order; None where it is quicker to search text by text.

    Args:
        data: the bytes to search.
        sought: the bytes to find, one at least.
    """
    if len(data) < _LEAST_BYTES:
        return None
    width = next(w for w in (4, 2, 1) if len(sought) >= 2 * w - 1)
    words = data[: len(data) // width * width].view(f"u{width}")
    wanted = [_word(sought, i, width) for i in range(width)]
    is_wanted = words == wanted[0]
    for word in wanted[1:]:
        is_wanted |= words == word
    if np.count_nonzero(is_wanted) > len(data) // _BYTES_PER_CANDIDATE:
        return None
    hits = np.flatnonzero(is_wanted)
    of_hits = words[hits]
    found = np.concatenate([hits[of_hits == word] * width - i for i, word in enumerate(wanted)])
    found.sort(kind="stable")  # fast, for it is a few runs in order
    found = found[np.searchsorted(found, 0) : np.searchsorted(found, len(data) - len(sought), "right")]
    if not len(found):  # there may be fewer bytes than are sought
        return found
    width = next(w for w in (8, 4, 2, 1) if len(sought) >= w)
    anywhere = np.ndarray((len(data) - width + 1,), f"u{width}", data, 0, (1,))  # the word that begins at each byte
    for at in {*range(0, len(sought) - width, width), len(sought) - width}:
        found = found[anywhere[found + at] == _word(sought, at, width)]
    return found


def _word(sought: bytes, at: int, width: int) -> int:
    return int.from_bytes(sought[at : at + width], sys.byteorder)


def first_places(places: NDArray[np.int64], size_bytes: int, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first of some places in each text; -1 where a text has none.

    Args:
        places: where something begins, in order.
        size_bytes: how long it is. It counts only where it ends in the text that it begins in.
        ends: where each text begins, and where the last one ends.
    """
    if len(places) == len(ends) - 1 and bool(((ends[:-1] <= places) & (places + size_bytes <= ends[1:])).all()):
        return places  # each text has one, as where all have the same fields: nothing is left to search
    first = np.append(places, ends[-1])[np.searchsorted(places, ends[:-1])]
    return np.where(first + size_bytes <= ends[1:], first, -1)
