from __future__ import annotations

import pytest

from tests.flow.configuration.test_advice import sink, source
from tests.support.flow_configurations import read


def idle(text: str) -> list[str]:
    return [f.text.partition(":")[0] for f in read(text).findings if f.code == "idle-property"]


@pytest.mark.parametrize(
    ("lines", "name", "switch"),
    [
        (("type = exec", "command = x", "restartThrottle = 5"), "restartThrottle", "restart = true"),
        (("type = http", "port = 1", "keystore = a.pem"), "keystore", "ssl = true"),
        (("type = syslogtcp", "port = 1", "keystore-password = x"), "keystore-password", "ssl = true"),
    ],
)
def test_a_property_of_a_source_that_does_nothing_is_found(lines: tuple[str, ...], name: str, switch: str) -> None:
    assert idle(source(*lines)) == [f"{name} does nothing without {switch}"]
    assert not idle(source(*lines[:-1]))
    keystore = ("keystore = a.pem",) if name == "keystore-password" else ()
    assert not idle(source(*lines, switch, *keystore))


HDFS = ("type = hdfs", "hdfs.path = /x")


@pytest.mark.parametrize(
    ("line", "with_it", "switch"),
    [
        ("hdfs.roundValue = 10", (), "hdfs.round = true"),
        ("hdfs.roundUnit = minute", (), "hdfs.round = true"),
        ("hdfs.inUseSuffix = .x", ("hdfs.emptyInUseSuffix = true",), ""),
        ("serializer = TEXT", (), "hdfs.fileType = DataStream"),
        ("serializer.appendNewline = false", (), "hdfs.fileType = DataStream"),
        ("hdfs.writeFormat = Writable", ("hdfs.fileType = DataStream",), ""),
    ],
)
def test_a_property_of_a_sink_that_does_nothing_is_found(line: str, with_it: tuple[str, ...], switch: str) -> None:
    (found,) = idle(sink(*HDFS, line, *with_it))
    assert found.startswith(f"{line.partition(' ')[0]} does nothing without ")
    assert not idle(sink(*HDFS, line, *([switch] if switch else [])))


def test_text_as_the_format_of_a_file_that_is_text_anyway_is_not_found() -> None:
    """Most files for Flume write both, and the advice was to write another type of file."""
    assert not idle(sink(*HDFS, "hdfs.fileType = DataStream", "hdfs.writeFormat = Text"))
