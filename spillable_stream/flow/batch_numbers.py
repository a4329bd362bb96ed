"""The numbers of a source's batches, as its channels remember them.

With each part of a batch goes a note: which channels have parts, by which division, and what the source says of its
input. The newest note in any of the channels tells which batch may be in some of them only. It is completed by the
division that began it. By another one it is a new batch, under the next number: what went to one channel may go to
another one now, which has the number, and would take it for stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.port import ProducerClaim
from spillable_stream.errors import OptionError, SpillableError
from spillable_stream.flow.late_channel import is_open
from spillable_stream.flow.sources.base import Noted
from spillable_stream.format.numbered_batch import BY_PRODUCER, MAX_NOTE_BYTES, NumberedBatch, Numbers
from spillable_stream.format.packing import MALFORMED, pack, unpack
from spillable_stream.log_records import fields, log_of
from spillable_stream.names import check_producer

__all__ = ["BatchNumbers", "write_note"]

_log = log_of("spillable_stream.flow")


class BatchNumbers:
    """A producer's name in some channels, and the last number that each of them has of it.

    Args:
        producer: the name, as ``a1.r1``.
        channels: the channels, by name.
        optional: those of them that need not have any batch, and have none that no other channel has a part of. They
            are asked when the first one goes there (`join`).
        division: a short name of all by which the configuration divides events; "" if nobody knows.

    Attributes:
        newest: the newest batch that one of the other channels has, as the last look found it; None if none has any.

    Raises:
        OptionError: no producer can have such a name.
    """

    def __init__(
        self, producer: str, channels: Mapping[str, Channel], optional: Collection[str] = (), division: str = ""
    ) -> None:
        self.producer: str = check_producer(producer)
        self.division: str = division
        self.newest: Noted | None = None
        self._channels, self._optional = channels, optional
        self._claims: dict[str, ProducerClaim] = {}  # by channel
        self._mutex = threading.Lock()
        self._is_claimed = self._is_released = False
        self._last: dict[str, int] = {}  # of each channel
        self._ahead: dict[str, int] = {}  # of those that can't join yet
        self._parts_before: Mapping[str, int] = {}  # of the newest batch

    def claim(self, is_settled: Callable[[int], bool] | None = None) -> None:
        """Claim the name in every channel that is not optional, and look what they have of it; once.

        Args:
            is_settled: whether the source knows of a batch that all of its channels had their parts, by its number;
                None if it never knows. It is asked of one that had events for a channel that is no more among these,
                or that another channel may have the name of.

        Raises:
            ProducerBusyError: another live processor or producer has the name in one of the channels.
            OptionError: two of the channels are one.
        """
        if self._is_claimed:
            return
        self._refuse_twins()
        self._is_released = False
        try:
            for name in self._required():
                self._claim(name)
            self._look(is_settled)
        except BaseException:
            self.release()
            raise
        self._is_claimed = True

    def look_again(self, is_settled: Callable[[int], bool] | None = None) -> None:
        """Look what the channels have of the name now, for a source that begins; claim it if nobody did.

        Arguments and errors are those of `claim`.
        """
        if self._is_claimed:
            self._look(is_settled)
        else:
            self.claim(is_settled)

    def _claim(self, channel: str) -> None:
        claim = self._channels[channel].put_port().claim_producer(self.producer)
        with self._mutex:
            if not self._is_released:
                self._claims[channel] = claim
                return
        claim.release()
        raise SpillableError(f"{self.producer} was closed while it was claimed in {channel}")

    def join(self, channel: str, number: int) -> None:
        """Claim the name in an optional channel, too, and look what it has of it; once. Nothing to do in the others.

        It may be called in a thread of its own, and hang as long as the channel does: nothing else waits for it.

        Args:
            channel: the channel.
            number: the batch that is to go there.

        Raises what `claim` raises, and:
            SpillableError: the channel has batches up to this one or beyond it that the others know nothing of. It
                would take the new ones for repetitions of those.
        """
        if channel in self._last:
            return
        if channel not in self._claims:
            self._refuse_twins()  # it may have been opened since the others were claimed
            self._claim(channel)
        if channel not in self._ahead:
            self._ahead[channel] = self._channels[channel].last_batch(self.producer).sequence
        last, known = self._ahead[channel], 0 if self.newest is None else self.newest.number
        if known < last and number <= last:
            raise SpillableError(
                f"it has batch {last} of {self.producer} from before, and {known} was the last one in the other "
                f"channels: it would take what comes for what it has, up to that number. Start the source once with "
                f"{channel} as a required channel, and it counts on from there"
            )
        self._last[channel] = last

    def release(self) -> None:
        """Give up the name."""
        with self._mutex:
            self._is_released = True
            claims, self._claims = list(self._claims.values()), {}
        for claim in claims:
            claim.release()

    def _refuse_twins(self) -> None:
        names: dict[str, str] = {}
        for name, channel in self._channels.items():
            if not is_open(channel):
                continue
            other = names.setdefault(channel.put_port().place(), name)
            if other != name:
                raise OptionError(f"{other} and {name} are one channel, {channel.path}; name it once")

    def _required(self) -> list[str]:
        return [name for name in self._channels if name not in self._optional]

    def _look(self, is_settled: Callable[[int], bool] | None) -> None:
        """Look what the required channels have of the name, and decide what becomes of the newest batch."""
        found = {name: self._channels[name].last_batch(self.producer) for name in self._required()}
        self.newest, self._parts_before = None, {}
        self._last |= {name: last.sequence for name, last in found.items()}
        number = max((last.sequence for last in found.values()), default=0)
        if not number:
            return
        noted = _read_note(next(last.note for last in found.values() if last.sequence == number))
        is_divided_otherwise = bool(self.division) and noted.division not in ("", self.division)
        missing, gone = self._lacking(number, noted.parts, is_settled, is_divided_otherwise=is_divided_otherwise)
        if is_divided_otherwise and (missing or (gone and is_settled is not None)):
            self._say_divided_anew(number, noted.parts, missing, gone)
            self.newest = Noted(number + 1, noted.of_source, complete=False)
            return
        if gone:
            self._say_what_cannot_be_told(number, gone)
        self._parts_before = noted.parts
        self.newest = Noted(number, noted.of_source, complete=not missing)

    def _lacking(
        self,
        number: int,
        parts: Mapping[str, int],
        is_settled: Callable[[int], bool] | None,
        *,
        is_divided_otherwise: bool,
    ) -> tuple[list[str], dict[str, int]]:
        """Return which channels lack their parts of a batch, and which parts went to channels that are no more these.

        Args:
            number: the batch's number.
            parts: how many events each channel gets of it.
            is_settled: see `claim`.
            is_divided_otherwise: whether another configuration divided it.
        """
        missing = [name for name in parts if self._last.get(name, number) < number]
        gone = {name: count for name, count in parts.items() if name not in self._last}
        is_in_doubt = gone or (missing and is_divided_otherwise)
        if is_settled is None or not is_in_doubt or not is_settled(number):
            return missing, gone
        # What lacks it by another division is another channel that has the name now.
        return ([] if is_divided_otherwise else missing), {}

    def _say_what_cannot_be_told(self, number: int, gone: Mapping[str, int]) -> None:
        _log.warning(
            "batch %d of %s had events for channels that it need not put into any more: %s. Where one of them had "
            "refused them, or the agent was killed before it had them, they are lost: check that it has them",
            number,
            self.producer,
            gone,
            extra=fields(component=self.producer),
        )

    def _say_divided_anew(
        self, number: int, parts: Mapping[str, int], missing: Collection[str], gone: Collection[str]
    ) -> None:
        _log.warning(
            "batch %d of %s %s not in %s, and the configuration has changed since it was divided. So all of it is put "
            "once more, as batch %d, by the present configuration: of its events, those that channels have already may "
            "be duplicated: %s",
            number,
            self.producer,
            "is perhaps" if gone else "is",
            ", ".join([*missing, *gone]),
            number + 1,
            {name: count for name, count in parts.items() if name not in missing and name not in gone},
            extra=fields(component=self.producer),
        )

    def numbered(self, channel: str, number: int, note: bytes) -> NumberedBatch:
        """Return what a put of a batch says to a channel, which has all batches before it or needs none of them."""
        return NumberedBatch(self.producer, Numbers(min(self._last[channel] + 1, number), number, BY_PRODUCER), note)

    def claim_in(self, channel: str) -> ProducerClaim | None:
        """Return the claim on the name in a channel, for a put there to prove; None before `claim`."""
        return self._claims.get(channel)

    def stored(self, channel: str, number: int) -> None:
        """Note that a channel has its part of a batch."""
        self._last[channel] = max(self._last[channel], number)

    def is_begun(self, number: int) -> bool:
        """Tell whether a batch must stay as it is: a channel has its part of it, or of the one that it is put anew for.

        Its source can't divide either: a note says which of its input comes again, as a whole.
        """
        is_anew = self.newest is not None and not self.newest.complete and number == self.newest.number
        return is_anew or any(last >= number for last in list(self._last.values()))

    def compare(self, number: int, parts: Mapping[str, int]) -> None:
        """Warn where a batch that was in some channels before a restart has other parts now; once.

        Args:
            number: the batch's number.
            parts: how many events go to each channel now.
        """
        before, self._parts_before = self._parts_before, {}
        if before and self.newest is not None and number == self.newest.number and before != parts:
            _log.warning(
                "batch %d of %s had other parts before the restart: %s events then, %s now. Channels that have theirs "
                "keep them. The interceptors, the selector or the input changed in between",
                number,
                self.producer,
                dict(before),
                dict(parts),
                extra=fields(component=self.producer),
            )


class _ReadNote(NamedTuple):
    """The note of a batch: how many events each channel has, what the source said, and the division."""

    parts: Mapping[str, int] = {}
    of_source: bytes = b""
    division: str = ""


def write_note(parts: Mapping[str, int], note: bytes, division: str = "") -> bytes:
    """Return what is kept with a batch in each of its channels.

    Args:
        parts: how many events go to each channel that must have some.
        note: what the source says.
        division: see `BatchNumbers`.

    Raises:
        OptionError: the note is too large.
    """
    value: dict[str, object] = {"parts": dict(parts), "note": note}
    if division:
        value["division"] = division
    packed = pack(value)
    if len(packed) > MAX_NOTE_BYTES:
        raise OptionError(
            f"the note of a batch has {len(note):,} bytes, and {MAX_NOTE_BYTES - len(packed) + len(note):,} are kept"
        )
    return packed


def _read_note(packed: bytes) -> _ReadNote:
    """Return what a note says; nothing of one that no processor wrote."""
    if not packed:
        return _ReadNote()
    try:
        found = unpack(packed)
        parts = {str(name): int(count) for name, count in found["parts"].items()}
        return _ReadNote(parts, bytes(found["note"]), str(found.get("division", "")))
    except MALFORMED:
        return _ReadNote()
