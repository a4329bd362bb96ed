from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from spillable_stream import flow
from spillable_stream.cli import app
from tests.support.flow_configurations import SMALL


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["graph", *(str(a) for a in arguments)])


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "flume.conf"
    path.write_text("\n".join(line.strip() for line in SMALL.splitlines()))
    return path


def test_a_configuration_is_drawn_in_three_ways(conf: Path) -> None:
    graph = flow.Graph(flow.load(conf))
    assert run("-f", conf).stdout == graph.text() + "\n"
    assert run("-f", conf, "--format", "dot").stdout == graph.dot() + "\n"
    assert run("-f", conf, "--format", "mermaid").stdout == graph.mermaid() + "\n"
    said = json.loads(run("-f", conf, "--format", "dot", "--json").stdout)
    assert said == {"format": "dot", "graph": graph.dot()}


def test_the_status_says_whether_anything_runs(conf: Path, tmp_path: Path) -> None:
    assert run("-f", conf).exit_code == 0
    conf.write_text(conf.read_text().replace("= memory", "= kafka"))
    done = run("-f", conf)
    assert done.exit_code == 1 and "x channel c1: the type kafka" in done.stdout
    assert run("-f", tmp_path / "none.conf").exit_code == 2


def test_where_there_is_no_agent_to_draw_that_is_said(conf: Path) -> None:
    done = run("-f", conf, "-n", "other")
    assert (done.exit_code, done.stdout) == (1, "") and "there is no agent other: the file describes a1" in done.stderr
