"""Tail a log file into a channel, each line once, however often this program is killed and started again.

The number of a batch is the offset in the file at which it ends, so the last number in the channel says where to
resume, and a batch that was committed right before a kill is known when it is sent again.

    python tail.py /var/log/syslog channels/syslog

A file that was rotated while the program was down is finished with ``--once``, by its new name.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO

import spillable_stream as ss

LINES = 1_000  # in one batch
PAUSE_SECONDS = 0.2


def batches(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yield whole lines, without their ends; one that has no end yet is still being written."""
    lines: list[bytes] = []
    while (line := file.readline()).endswith(b"\n"):
        lines.append(line[:-1])
        if len(lines) == LINES:
            yield lines
            lines = []
    file.seek(-len(line), os.SEEK_CUR)
    if lines:
        yield lines


def drain(file: BinaryIO, producer: ss.Producer) -> None:
    """Send what is in the file from here on, and wait until it is stored.

    A send takes the lines over. Its future says that they are in the channel, or raises what kept them out. Nothing
    behind a batch that failed is stored, so the next run continues there.
    """
    end, sent = file.tell(), deque[Future[ss.Result]]()
    for lines in batches(file):
        end += sum(map(len, lines)) + len(lines)
        sent.append(producer.send_many(lines, sequence=end))
        while sent and sent[0].done():
            sent.popleft().result()
    for future in sent:
        future.result()


def is_rotated(file: BinaryIO, path: Path) -> bool:
    """Tell whether another file has the name by now."""
    return path.exists() and path.stat().st_ino != os.fstat(file.fileno()).st_ino


def tail(path: Path, channel: ss.Channel, follow: bool) -> None:
    """Send a file's lines until it is rotated, or its end if it is not followed."""
    with path.open("rb") as file:
        inode = os.fstat(file.fileno()).st_ino  # a file that is rotated keeps it, and not its name
        with ss.Producer(channel, producer_id=f"tail-{inode}") as producer:
            file.seek(producer.last_sequence())
            rotated = False
            while not rotated:
                rotated = not follow or is_rotated(file, path)  # asked first: then the file grows no more
                drain(file, producer)
                if not rotated:
                    time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Tail the file that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="the log file")
    parser.add_argument("channel", help="the channel's directory, or its address in a store; it is created if missing")
    parser.add_argument("--once", action="store_true", help="end at the end of the file")
    arguments = parser.parse_args()
    with ss.exit_on_sigterm(), ss.Channel(arguments.channel) as channel:
        tail(arguments.file, channel, follow=not arguments.once)
        while not arguments.once:
            tail(arguments.file, channel, follow=True)


if __name__ == "__main__":
    main()
