from __future__ import annotations

import os
from pathlib import Path

from spillable_stream.flow.descriptor import Descriptor


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_a_descriptor_that_is_forgotten_is_closed(tmp_path: Path) -> None:
    descriptor = Descriptor(tmp_path / "f", os.O_WRONLY | os.O_CREAT)
    number = descriptor.number
    assert is_open(number) and not os.get_inheritable(number)
    del descriptor
    assert not is_open(number)


def test_a_descriptor_is_closed_once(tmp_path: Path) -> None:
    descriptor = Descriptor(tmp_path / "f", os.O_WRONLY | os.O_CREAT)
    number = descriptor.number
    with open(tmp_path / "other", "wb") as other:
        descriptor.close()
        assert descriptor.number == -1 and not is_open(number)
        os.dup2(other.fileno(), number)
    descriptor.close()
    assert is_open(number), "it was another file's by then"
    os.close(number)
