"""A log without files: applies frames to a state as replay does."""

from __future__ import annotations

from typing import Any

from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.frame import Frame, FrameHeader, FrameType
from spillable_stream.format.packing import pack
from spillable_stream.format.take_record import TakeRecord
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState


class Log:
    """Applies frames to a state as replay does."""

    def __init__(self) -> None:
        self.state = ChannelState(ChannelOptions(overflow_capacity=100), [b"schema"])
        self.offset = 0

    def frame(self, frame: Frame, tx: int, order: int = 0, time_us: int = 1000, file: int = 1) -> None:
        payload = bytes(frame.payload)
        header = FrameHeader(frame.type, len(payload), tx, order, frame.count, 0, time_us, 0)
        self.state.apply(file, self.offset, header, payload if frame.type != FrameType.PUT else None)
        self.offset += 48 + len(payload)

    def put(self, tx: int, first: int, count: int, file: int = 1) -> None:
        self.frame(Frame.of(FrameType.PUT, b"events", count), tx, first, file=file)

    def take(self, tx: int, group: str, *ranges: tuple[int, int]) -> None:
        self.frame(TakeRecord(group, list(ranges)).frame(0), tx)

    def commit(self, tx: int, kind: str, first: int = 0, count: int = 0, file: int = 1, **more: Any) -> None:
        self.frame(CommitRecord(kind, 0, **more).frame(count), tx, first, file=file)

    def control(self, tx: int, type_: FrameType, value: dict[str, Any]) -> None:
        self.frame(Frame.of(type_, pack(value)), tx)
        self.commit(tx, "control")

    def group(self, tx: int, name: str, position: int = 0) -> None:
        self.control(tx, FrameType.GROUP, {"group": name, "position": position})


def filled(count: int = 10) -> Log:
    log = Log()
    log.put(1, 1, count)
    log.commit(1, "put", 1, count)
    return log


def lost(log: Log, tx: int, first: int, last: int) -> None:
    value = {"lost": [[first, last]], "doubtful": [], "next": log.state.next_id, "groups": {}, "kept": True}
    log.control(tx, FrameType.LOST, value)
