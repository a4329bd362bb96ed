"""A batch whose parts are on their way into the channels, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.channel.row_times import RowTimes
from spillable_stream.errors import DeliveryError
from spillable_stream.flow.pieces import halves

__all__ = ["Processed", "RoutedBatch"]


class Processed(NamedTuple):
    """What became of a batch.

    Args:
        received: how many events it had.
        passed: how many the interceptors let pass.
        dead: how many went to the dead-letter channel.
        stored: how many went to each required channel.
    """

    received: int
    passed: int
    dead: int
    stored: Mapping[str, int]


class RoutedBatch:
    """A batch behind the interceptors and the selector, on its way into the channels.

    Args:
        number: its number; None without one.
        required: the part of each channel that must have one.
        optional: the part of each channel that may have one.
        result: what becomes of it.
        note: what its channels keep with its number.
        times: the times of the parts that have some.
        divide: routes the same events again; None where nobody needs that.
        is_begun: whether some channels have their parts since before a restart.

    Attributes:
        done: the channels that have theirs.
        in_doubt: the channels that may have theirs, and did not say so.
    """

    def __init__(
        self,
        number: int | None,
        required: Mapping[str, pa.RecordBatch],
        optional: Mapping[str, pa.RecordBatch],
        result: Processed,
        note: bytes,
        times: Mapping[str, RowTimes] | None = None,
        divide: Callable[[], RoutedBatch] | None = None,
        is_begun: bool = False,
    ) -> None:
        self.number = number
        self.required: Mapping[str, pa.RecordBatch] = required
        self.optional: Mapping[str, pa.RecordBatch] = optional
        self.result: Processed = result
        self.note: bytes = note
        self.times: Mapping[str, RowTimes] = times or {}
        self.done: set[str] = set()
        self.in_doubt: set[str] = set()
        self._divide = divide
        self._is_begun = is_begun

    @property
    def is_divisible(self) -> bool:
        """Whether its events may still be put in other batches: no channel is known to have its part."""
        return not (self._is_begun or self.done)

    @property
    def is_nowhere(self) -> bool:
        """Whether no channel has any of it, for sure."""
        return self.is_divisible and not self.in_doubt

    @property
    def is_incomplete(self) -> bool:
        """Whether a channel that must have its part is not known to have it."""
        return not self.required.keys() <= self.done

    def divide_again(self) -> None:
        """Route its events again, because the channels changed; no channel may have any of them.

        Raises what `ChannelProcessor.route` raises.
        """
        assert self._divide is not None and not self.done
        again = self._divide()
        self.required, self.optional, self.times = again.required, again.optional, again.times
        self.result, self.note = again.result, again.note

    def let_off(self, names: Collection[str]) -> None:
        """Let some channels do without their parts."""
        self.optional = {**self.optional, **{name: part for name, part in self.required.items() if name in names}}
        self.required = {name: part for name, part in self.required.items() if name not in names}

    def without_channels(self, names: Collection[str]) -> int:
        """Forget the parts of some channels; return how many events the required ones of them do not have."""
        lost = 0
        for name in self.required.keys() & {*names} - self.done:
            lost += self.required[name].num_rows
        self.required = {name: part for name, part in self.required.items() if name not in names}
        self.optional = {name: part for name, part in self.optional.items() if name not in names}
        self.in_doubt -= {*names}
        return lost

    def optional_halves(self, name: str) -> list[RoutedBatch]:
        """Return both halves of an optional channel's part, which has two events or more, as batches of their own."""
        times, found, start = self.times.get(name), list[RoutedBatch](), 0
        for half in halves(self.optional[name]):
            of_half = {} if times is None else {name: times.slice(start, half.num_rows)}
            found.append(RoutedBatch(None, {}, {name: half}, self.result, b"", of_half))
            start += half.num_rows
        return found

    def delivery_error(self, producer: str | None, failures: Mapping[str, Exception]) -> DeliveryError:
        """Return the error for a batch that some channels did not take.

        Args:
            producer: the name of its source's producer; None without one.
            failures: what each of them raised, one at least.
        """
        batch = "a batch" if self.number is None else f"batch {self.number} of {producer}"
        stored = [name for name in self.required if name in self.done]
        where = (
            f"is in {', '.join(stored)}, and not in {', '.join(failures)}"
            if stored
            else f"is not in {', '.join(failures)}"
        )
        name, first = next(iter(failures.items()))
        error = DeliveryError(f"{batch} {where}: {name}: {first}. Send it again", dict(failures), tuple(stored))
        error.__cause__ = first
        return error
