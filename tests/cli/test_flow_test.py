from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from spillable_stream.cli import app
from tests.support.flow_configurations import SMALL, SMALL_TESTS


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["test", *(str(a) for a in arguments)])


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    (tmp_path / "flume.conf").write_text("\n".join(line.strip() for line in SMALL.splitlines()))
    path = tmp_path / "tests.toml"
    path.write_text(SMALL_TESTS)
    return path


def test_tests_that_pass_are_status_0(tests: Path) -> None:
    done = run(tests)
    assert (done.exit_code, done.stdout) == (0, "passed: all to c1\n")
    assert json.loads(run(tests, "--json").stdout)["tests"] == [{"name": "all to c1", "passed": True, "failures": []}]


def test_a_test_that_fails_is_status_1_with_the_difference(tests: Path) -> None:
    tests.write_text(SMALL_TESTS.replace('bodies = ["x"]', 'bodies = ["y"]'))
    done = run(tests)
    assert done.exit_code == 1
    assert done.stdout == "failed: all to c1\n  c1: bodies: expected (b'y',), got (b'x',)\n"


def test_tests_that_cannot_be_read_are_status_2(tests: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "none.toml").exit_code == 2
    tests.write_text("[[test]]\n")
    done = run(tests)
    assert done.exit_code == 2 and "needs name" in done.stderr
    tests.write_text(SMALL_TESTS.replace("flume.conf", "none.conf"))
    assert run(tests).exit_code == 2


def test_the_configuration_may_be_given(tests: Path, tmp_path: Path) -> None:
    (tmp_path / "flume.conf").rename(tmp_path / "other.conf")
    assert run(tests, "-f", tmp_path / "other.conf").exit_code == 0
