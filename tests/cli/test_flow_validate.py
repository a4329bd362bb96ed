from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from spillable_stream.cli import app
from tests.support.flow_configurations import SMALL


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["validate", *(str(a) for a in arguments)])


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "flume.conf"
    path.write_text("\n".join(line.strip() for line in SMALL.splitlines()))
    return path


def add(path: Path, *lines: str) -> None:
    path.write_text("\n".join([path.read_text(), *lines, ""]))


def test_a_good_file_is_status_0_and_shows_what_runs(conf: Path) -> None:
    done = run("-f", conf)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "a1: runs with sources r1; channels c1; sinks k1",
        "0 errors, 0 warnings, 0 notes",
    ]


@pytest.mark.parametrize("verb", ["validate", "graph", "agent -n a1", "test x.toml", "send -n a1 --source r1"])
def test_an_empty_name_of_a_file_is_status_2(verb: str) -> None:
    done = CliRunner().invoke(app, [*verb.split(), "-f", ""])
    assert done.exit_code == 2 and "it is empty; give a file" in done.stderr


def test_an_error_is_status_1_with_its_file_and_line(conf: Path) -> None:
    add(conf, "a1.sources.r1.batchSize = x")
    done = run("--conf-file", conf, "--name", "a1")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[1].startswith(f"{conf}:10: error bad-value a1.sources.r1: batchSize must be")
    assert done.stdout.splitlines()[-1] == "1 error, 1 warning, 0 notes"


def test_a_warning_is_status_1_only_where_warnings_are_denied(conf: Path) -> None:
    add(conf, "a1.sources.r1.bachSize = 1")
    assert run("-f", conf).exit_code == 0
    assert run("-f", conf, "--deny-warnings").exit_code == 1


def test_notes_are_never_denied(conf: Path) -> None:
    add(conf, "a1.sinks.k1.type = file_roll", "a1.sinks.k1.sink.directory = /tmp")
    conf.write_text(conf.read_text().replace("a1.sinks.k1.type = null\n", ""))
    done = run("-f", conf, "--deny-warnings")
    assert done.exit_code == 0 and ": note memory-channel " in done.stdout


def test_json_has_what_is_kept_and_the_findings(conf: Path) -> None:
    add(
        conf, "a1.sources = r1 r2", "a1.sources.r2.type = none", "a1.sinkgroups = g1", "a1.sinkgroups.g1.sinks = k1",
        "b1.sources = r1",
    )  # fmt: skip
    done = run("-f", conf, "--json")
    assert done.exit_code == 1
    said = json.loads(done.stdout)
    assert said["agents"] == {"a1": {"sources": ["r1"], "channels": ["c1"], "sinks": ["k1"], "sinkgroups": ["g1"]}}
    finding = next(f for f in said["findings"] if f["code"] == "unknown-type")
    assert list(finding) == ["file", "line", "severity", "code", "component", "text"]
    assert (finding["file"], finding["line"], finding["severity"]) == (str(conf), 11, "error")
    assert finding["component"] == "a1.sources.r2" and "none" in finding["text"]


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_file_that_cannot_be_read_is_status_2(tmp_path: Path, as_json: tuple[str, ...]) -> None:
    for path in (tmp_path / "none.conf", tmp_path):
        done = run("-f", path, *as_json)
        assert done.exit_code == 2
        if as_json:
            assert json.loads(done.stdout)["path"] == str(path)
        else:
            assert str(path) in done.stderr


def test_options_of_java_answer_references_and_a_map_names_classes(conf: Path) -> None:
    add(conf, "a1.sources.r1.batchSize = ${sys:size}", "a1.sources.r1.interceptors = i1")
    add(conf, "a1.sources.r1.interceptors.i1.type = com.acme.Mask$Builder")
    mapped = "com.acme.Mask$Builder=spillable_stream.flow.interceptors.headers:Static"
    assert run("-f", conf, "-Dsize=7", "--map", mapped).exit_code == 0
    assert run("-f", conf, "-D", "size=7", "--map", mapped).exit_code == 0
    assert run("-f", conf, "-D", "size=7").exit_code == 1


def test_the_environment_is_looked_at_where_it_is_wanted(conf: Path) -> None:
    add(conf, f"a1.channels.c1.path = {conf}/below/a/file")
    assert run("-f", conf).exit_code == 0
    done = run("-f", conf, "--environment")
    assert done.exit_code == 1 and ": error directory-unusable a1.channels.c1: " in done.stdout


def test_several_files_are_one_configuration(conf: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.conf"
    more.write_text("a1.sinks.k1.type = nul\n")
    done = run("-f", conf, "-f", more)
    assert done.exit_code == 1 and f"{more}:1: error unknown-type a1.sinks.k1" in done.stdout


def test_an_agent_without_a_part_that_runs_is_reported(conf: Path) -> None:
    add(conf, "a1.channels.c1.type = kafka")
    done = run("-f", conf)
    assert done.exit_code == 1 and "a1: nothing runs" in done.stdout.splitlines()
