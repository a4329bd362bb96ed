"""The puts of a batch's parts, several at once, each waiting for room as long as its channel says."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from spillable_stream.call_threads import CallThreads
from spillable_stream.channel.channel import Channel
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.engine.port import NoRoomYetError, ProducerClaim
from spillable_stream.errors import UnsafeStoreError
from spillable_stream.flow.routed_batch import RoutedBatch
from spillable_stream.format.numbered_batch import NumberedBatch

__all__ = ["PartPuts"]

_FULL_POLL_SECONDS = 0.01


class PartPuts:
    """Puts parts of batches into their channels.

    Args:
        channels: the channels by name; one may be added before the first put.
    """

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels
        self._threads = CallThreads(len(channels) + 1, "spillable-flow-put")
        self._last_wait = float("inf")  # until when puts may wait for room, in monotonic seconds

    def end_waiting(self, seconds: float) -> None:
        """Let no put wait for room after some time from now, however many there are.

        Args:
            seconds: after how long.
        """
        self._last_wait = time.monotonic() + seconds

    def close(self) -> None:
        """Let the puts under way end, and the threads with them."""
        self._threads.close()

    def at_once(self, names: Sequence[str], put: Callable[[str], Exception | None]) -> dict[str, Exception]:
        """Put into several channels at once, so that their syncs overlap.

        Args:
            names: the channels' names, one at least.
            put: puts into one of them, and returns why that failed.

        Returns:
            What failed, by the channel's name.
        """
        found = self._threads.at_once([partial(put, name) for name in names])
        return {name: error for name, error in zip(names, found, strict=True) if error is not None}

    def put(
        self,
        routed: RoutedBatch,
        name: str,
        part: pa.RecordBatch,
        numbered: NumberedBatch | None = None,
        claim: ProducerClaim | None = None,
        *,
        may_wait: bool = True,
    ) -> None:
        """Put the part of one channel; once more where it tells a loss of earlier events, which is in the log.

        Args:
            routed: the batch.
            name: the channel's name.
            part: the channel's part of it.
            numbered: the producer and the numbers of the batch, if it has some.
            claim: the claim on the producer's name in the channel, if it was claimed.
            may_wait: whether it waits while there is no room, as long as the channel says.

        Raises:
            SpillableError: the channel refused.
        """
        channel, began = self._channels[name], time.monotonic()
        while True:
            try:
                transaction = channel.put_transaction()
                transaction.producer, transaction.claim = numbered, claim
                transaction.is_bounded = routed.is_divisible or name not in routed.required
                now = time.monotonic()
                if may_wait and now < self._last_wait:
                    transaction.waited_seconds = now - began
                else:
                    _do_not_wait(transaction, channel)
                with transaction:
                    if name in routed.times:
                        transaction.put_timed(part, routed.times[name])
                    else:
                        transaction.put_batch(part)
                return
            except NoRoomYetError as e:
                self._wait_for_room(e)
            except UnsafeStoreError as e:
                if not e.stored_nothing:
                    raise

    def _wait_for_room(self, full: NoRoomYetError) -> None:
        while not full.may_be_over() and time.monotonic() < self._last_wait:
            time.sleep(_FULL_POLL_SECONDS)


def _do_not_wait(transaction: PutTransaction, channel: Channel) -> None:
    """Let a transaction fail at once where its channel has no room."""
    options = channel.put_options()
    transaction.waited_seconds = options.keep_alive + options.overflow_timeout
