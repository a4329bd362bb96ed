"""Channel selectors: which events of a batch go to which channels.

A selector is asked once for a batch, and a batch that is sent again has its number again. So a selector that chooses by
turns or by chance does so by the number: a repetition goes where the batch went before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.errors import OptionError
from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.event_batch import header
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LoadBalancing", "Multiplexing", "Replicating", "Routes", "Rows", "Selector"]

Rows: TypeAlias = "pa.Array | None"
"""Numbers of events in their batch, ascending, as an Arrow array of integers; None for all of them."""


class Routes(NamedTuple):
    """Where the events of a batch go: for each channel that gets some, which.

    Args:
        required: a channel must have its events before the batch is done.
        optional: a channel gets its events if it can take them at once.
    """

    required: Mapping[str, Rows]
    optional: Mapping[str, Rows]

    def one_part_each(self) -> Routes:
        """Return routes by which a channel that must have some events must have those, too, that it may have.

        A channel has one part of a batch: it would take another one for a repetition.
        """
        both = self.required.keys() & self.optional.keys()
        if not both:
            return self
        joined = {name: _either(self.required[name], self.optional[name]) for name in both}
        return Routes({**self.required, **joined}, {n: rows for n, rows in self.optional.items() if n not in both})


def _either(one: Rows, other: Rows) -> Rows:
    return None if one is None or other is None else pa.array(np.union1d(one, other))


class Selector:
    """Chooses channels. One of your own has a `select`; a configuration gives the constructor its properties.

    Attributes:
        channels: the names of the source's channels, in order; `bind` sets them.
    """

    channels: tuple[str, ...] = ()

    def bind(self, channels: Sequence[str]) -> None:
        """Set the channels to choose from.

        Args:
            channels: their names, in the order of the source's list.

        Raises:
            OptionError: the selector names another one.
        """
        self.channels = tuple(channels)
        for name in self.named():
            if name not in self.channels:
                raise OptionError(
                    f"the selector names the channel {shown(name)}, and the source has {', '.join(self.channels)}; "
                    "add it there"
                )

    def named(self) -> set[str]:
        """Return the channels that the selector's own properties name."""
        return set()

    def never_required(self) -> set[str]:
        """Return the channels that no source needs to wait for: no event must go there, whatever comes.

        Each event that may go to one of them must go to another one, too: a restart asks the others which batches
        there were.
        """
        return set()

    def select(self, batch: pa.RecordBatch, number: int) -> Routes:
        """Return where the events of a batch go.

        Args:
            batch: the events.
            number: the batch's number; a batch that is sent again has its number again.
        """
        raise NotImplementedError(f"{type(self).__name__} has no select()")


class Replicating(Selector):
    """Sends every event to every channel.

    Args:
        optional: the channels that need not take it.
    """

    @checked
    def __init__(self, *, optional: Sequence[str] = ()) -> None:
        self.optional: tuple[str, ...] = tuple(optional)

    def named(self) -> set[str]:
        """Return the optional channels."""
        return set(self.optional)

    def never_required(self) -> set[str]:
        """Return the optional channels, if there is another one."""
        return self.named() if self.named() < set(self.channels) else set()

    def select(self, batch: pa.RecordBatch, number: int) -> Routes:
        """Return all events for each channel."""
        required: dict[str, Rows] = {name: None for name in self.channels if name not in self.optional}
        return Routes(required, {name: None for name in self.channels if name in self.optional})


class Multiplexing(Selector):
    """Sends an event to the channels that belong to the value of a header.

    Args:
        header: the header.
        mapping: the channels by value. Values are compared exactly.
        default: the channels of an event whose header is missing, blank or has another value. Without one such events
            go nowhere, and count as accepted.
        optional: the channels by value that need not take it; those that must, for this value, are not among them.

    Raises:
        OptionError: the mapping is empty.
    """

    @checked
    def __init__(
        self,
        header: str = "flume.selector.header",
        mapping: Mapping[str, Sequence[str]] | None = None,
        *,
        default: Sequence[str] = (),
        optional: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if not mapping:
            raise OptionError("a multiplexing selector needs a mapping from values of its header to channels")
        self.header = header
        self.mapping: dict[str, tuple[str, ...]] = {value: tuple(names) for value, names in mapping.items()}
        self.default: tuple[str, ...] = tuple(default)
        self.optional: dict[str, tuple[str, ...]] = {
            value: tuple(name for name in names if name not in self._required(value))
            for value, names in (optional or {}).items()
        }
        known = list(dict.fromkeys([*self.mapping, *self.optional]))
        self._known = pa.array(known, pa.string())
        self._required_lists = [*map(self._required, known), self.default]  # by number; the last one is of the others
        self._optional_lists = [*(self.optional.get(value, ()) for value in known), ()]

    def named(self) -> set[str]:
        """Return all channels that a value or the default leads to."""
        lists = (self.default, *self.mapping.values(), *self.optional.values())
        return {name for names in lists for name in names}

    def never_required(self) -> set[str]:
        """Return the channels to which a value leads as an optional one beside a required one, and none otherwise."""
        both = zip(self._required_lists, self._optional_lists, strict=True)
        alone = {name for required, optional in both if not required for name in optional}
        required = {name for names in (self.default, *self.mapping.values()) for name in names}
        return self.named() - required - alone

    def _required(self, value: str) -> tuple[str, ...]:
        return (self.mapping.get(value) or self.default) if value.strip() else self.default

    def select(self, batch: pa.RecordBatch, number: int) -> Routes:
        """Return for each channel the events whose header leads to it."""
        values = header(batch, self.header).fill_null("")
        codes = np.asarray(pc.index_in(values, value_set=self._known).fill_null(len(self._known)))
        return Routes(self._rows(codes, self._required_lists), self._rows(codes, self._optional_lists))

    def _rows(self, codes: NDArray[np.int32], channels: Sequence[Sequence[str]]) -> dict[str, Rows]:
        """Return the events of each channel.

        Args:
            codes: the value of each event, as a number.
            channels: the channels of each value, by that number.
        """
        found: dict[str, Rows] = {}
        for name in self.channels:
            leading = [code for code, names in enumerate(channels) if name in names]
            if not leading:
                continue
            rows = np.flatnonzero(codes == leading[0] if len(leading) == 1 else np.isin(codes, leading))
            if len(rows):
                found[name] = None if len(rows) == len(codes) else pa.array(rows)
        return found


class LoadBalancing(Selector):
    """Sends each event to one channel, so that a batch is spread over all.

    Args:
        policy: "round_robin" in turn, or "random".

    Raises:
        OptionError: there is no such policy.
    """

    @checked
    def __init__(self, *, policy: str = "round_robin") -> None:
        if policy.lower() not in ("round_robin", "random"):
            raise OptionError(f"a load_balancing selector's policy is round_robin or random, not {shown(policy)}")
        self.policy: str = policy.lower()

    def select(self, batch: pa.RecordBatch, number: int) -> Routes:
        """Return for each channel its share."""
        rows, count = batch.num_rows, len(self.channels)
        if self.policy == "random":
            chosen = np.random.default_rng(number).integers(0, count, rows)
        else:
            chosen = (np.arange(rows) + number) % count
        found = {name: np.flatnonzero(chosen == i) for i, name in enumerate(self.channels)}
        return Routes({name: pa.array(there) for name, there in found.items() if len(there)}, {})
