from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from spillable_stream import flow
from tests.support.flow_configurations import SMALL, running


def write(path: Path, text: str) -> Path:
    path.write_text(dedent(text))
    return path


def test_a_file_is_loaded_with_its_real_classes(tmp_path: Path) -> None:
    text = SMALL + "    a1.sources.r1.interceptors = i1\n    a1.sources.r1.interceptors.i1.type = static\n"
    loaded = flow.load(write(tmp_path / "flume.conf", text))
    assert running(loaded.agents["a1"]) == "a1: r1 | c1 | k1 | " and loaded.findings == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a line of a log\n" * (1 << 16) + b"\n", "a configuration larger than 1 MiB is not read"),
        (b"a1.sources = r1\na\0b", "its byte 17 is 0, as no byte of a configuration in UTF-8 is"),
        ("a1.sources = r1\n".encode("utf-16"), "its byte 3 is 0"),
    ],
)
def test_a_file_without_a_configuration_is_refused_before_each_of_its_lines_is_an_error(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(content)
    with pytest.raises(OSError, match=said) as refused:
        flow.load(path)
    assert refused.value.filename == str(path)


def test_a_pattern_that_java_refuses_drops_the_source(tmp_path: Path) -> None:
    text = (
        SMALL
        + """
    a1.sources.r1.interceptors = i1
    a1.sources.r1.interceptors.i1.type = regex_filter
    a1.sources.r1.interceptors.i1.regex = (a
    """
    )
    loaded = flow.load(write(tmp_path / "flume.conf", text), name="a1")
    assert not loaded.agents["a1"].sources
    codes = {f.code: f.component for f in loaded.errors}
    assert codes == {"part-fails": "a1.sources.r1", "bad-value": "a1.sources.r1.interceptors.i1"}


def test_references_are_answered_from_the_environment_and_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW_BATCH", "7")
    text = SMALL + "    a1.sources.r1.batchSize = ${env:FLOW_BATCH}\n    a1.sinks.k1.batchSize = ${sys:size}\n"
    path = write(tmp_path / "flume.conf", text)
    config = flow.load(path, system={"size": "9"}).agents["a1"]
    assert (config.sources[0].keywords, config.sinks[0].keywords) == ({"batch_size": 7}, {"batch_size": 9})
    config = flow.load(path, system={"size": "9"}, environment={"FLOW_BATCH": "8"}).agents["a1"]
    assert config.sources[0].keywords == {"batch_size": 8}
    assert os.environ["FLOW_BATCH"] == "7"


def test_a_config_filters_command_answers_with_its_first_line(tmp_path: Path) -> None:
    vault = write(
        tmp_path / "vault.py", "import sys\nprint(len(sys.argv[1]))\nprint('more')\nsys.exit(sys.argv[1] == 'no')\n"
    )
    text = (
        SMALL
        + f"""
    a1.configfilters = v
    a1.configfilters.v.type = external
    a1.configfilters.v.command = {sys.executable} {vault}
    a1.sources.r1.batchSize = ${{v['seven-c']}}
    a1.sinks.k1.batchSize = ${{v['no']}}
    """
    )
    loaded = flow.load(write(tmp_path / "flume.conf", text))
    assert loaded.agents["a1"].sources[0].keywords == {"batch_size": 7}
    failed = next(f for f in loaded.findings if f.code == "filter-failed")
    assert "ended with status 1" in failed.text


@pytest.mark.parametrize(("command", "part"), [("/no/such/vault", "can't be run"), ("/bin/true", "printed nothing")])
def test_a_command_without_an_answer_is_found(tmp_path: Path, command: str, part: str) -> None:
    text = (
        SMALL
        + f"""
    a1.configfilters = v
    a1.configfilters.v.type = external
    a1.configfilters.v.command = {command}
    a1.sinks.k1.batchSize = ${{v['k']}}
    """
    )
    loaded = flow.load(write(tmp_path / "flume.conf", text))
    assert part in next(f.text for f in loaded.findings if f.code == "filter-failed")


def test_of_several_files_a_later_one_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "one.conf", SMALL)
    second = write(tmp_path / "two.conf", "a1.sinks.k1.type = logger\n")
    assert flow.load([first, str(second)]).agents["a1"].sinks[0].type == "logger"


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        flow.load(tmp_path / "none.conf")


def test_a_date_is_that_of_today(tmp_path: Path) -> None:
    text = SMALL + "    a1.channels.c1.path = /x/${date:yyyy}\n"
    path = flow.load(write(tmp_path / "flume.conf", text)).agents["a1"].channels[0].keywords["path"]
    assert re.fullmatch(r"/x/20\d\d", str(path))
