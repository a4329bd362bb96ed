"""``create`` and ``alter``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel
from tests.support.command_line import run
from tests.support.events import put, take


def options(path: Path) -> dict[str, object]:
    with Channel(path, create=False, readonly=True) as channel:
        return dict(channel.options)


def test_a_channel_is_made_of_words_then_the_file_then_the_environment(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "channel.ini"
    config.write_text("[channel]\ntype = SPILLABLEMEMORY\nkeepAlive = 7\nlockTimeout = 7\n")
    for name in ("KEEP_ALIVE", "LOCK_TIMEOUT", "OVERFLOW_TIMEOUT"):
        monkeypatch.setenv(f"SPILLABLE_{name}", "8")
    done = run("create", path, "--config", config, "-o", "keepAlive=9")
    assert done.exit_code == 0 and done.stdout.startswith(f"{path}: created as ")
    found = options(path)
    assert [found[name] for name in ("keep_alive", "lock_timeout", "overflow_timeout")] == [9, 7, 8]
    assert found["memory_capacity"] == 10_000


def test_a_word_wins_over_the_file_however_each_spells_the_option(path: Path, tmp_path: Path) -> None:
    (tmp_path / "channel.ini").write_text("[channel]\nkeep_alive = 7\n")
    assert run("create", path, "--config", tmp_path / "channel.ini", "-o", "keepAlive=9").exit_code == 0
    assert options(path)["keep_alive"] == 9


@pytest.mark.parametrize("name", ["path", "self", "schema", "create", "readonly", "fs", "progress"])
@pytest.mark.parametrize("verb", ["create", "alter"])
def test_what_a_channel_takes_of_programs_is_not_an_option(path: Path, verb: str, name: str) -> None:
    if verb == "alter":
        Channel(path, minimum_required_space=0).close()
    done = run(verb, path, "-o", f"{name}=true")
    assert done.exit_code == 2 and f"'{name}' is not an option of a channel" in done.stderr


def test_a_channel_of_flumes_agent_is_created(path: Path, tmp_path: Path) -> None:
    agent = tmp_path / "agent.properties"
    agent.write_text(
        "a.channels = c d\na.channels.c.type = file\na.channels.c.capacity = 5000\na.channels.d.type = file\n"
    )
    done = run("create", path, "--config", agent)
    assert done.exit_code == 2 and "it has c, d" in done.stderr
    assert run("create", path, "--config", agent, "--channel", "c").exit_code == 0
    assert options(path)["overflow_capacity"] == 5000


def test_a_typed_channel_has_the_columns_of_a_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("n,s\n1,a\n")
    assert run("create", path, "--schema", tmp_path / "f.csv").exit_code == 0
    with Channel(path, create=False) as channel:
        assert channel.schema == pa.schema([("n", pa.int64()), ("s", pa.string())])
    (tmp_path / "g.csv").write_text("n,s,more\n1,a,2\n")
    assert run("alter", path, "--schema", tmp_path / "g.csv").stdout == "more: int64 was added\n"


def test_a_channel_that_is_there_is_not_touched(path: Path) -> None:
    with Channel(path, minimum_required_space=0, keep_alive=4):
        pass
    done = run("create", path, "-o", "keepAlive=9")
    assert done.exit_code == 1 and "spillable alter" in done.stderr and options(path)["keep_alive"] == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "keepAlive"], "has no value"),
        (["-o", "keepAliv=3"], "the nearest is 'keepAlive'"),
        (["-o", "keepAlive=x"], "keepAlive must be"),
        (["-o", "keepAlive=1", "-o", "keepAlive=2"], "is given twice"),
        (["--config", "nothing.ini"], "can't be read"),
    ],
)
def test_wrong_options_are_status_2_and_make_nothing(path: Path, words: list[str], said: str) -> None:
    done = run("create", path, *words)
    assert done.exit_code == 2 and said in done.stderr and not path.exists()


def test_alter_changes_options_under_use_and_keeps_events(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
        done = run("alter", path, "-o", "retentionMs=60000", "-o", "keepAlive=3")
        assert (done.exit_code, done.stdout) == (0, "retentionMs: 0 → 60000\n")
        assert channel.options["retention_ms"] == 60_000 and take(channel) == [b"a"]
    assert run("alter", path, "-o", "mode=0770").exit_code == 2
    assert run("alter", path / "other", "-o", "keepAlive=1").exit_code == 2
    assert "there is nothing to change: give -o NAME=VALUE" in run("alter", path).stderr


def test_the_environment_never_alters_a_channel(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Channel(path, minimum_required_space=0):
        pass
    monkeypatch.setenv("SPILLABLE_KEEP_ALIVE", "9")
    with Channel(path):
        pass
    run("put", path, input="x\n")
    assert options(path)["keep_alive"] == 3


@pytest.mark.parametrize("verb", ["create", "alter"])
def test_a_missing_schema_file_is_not_answered_with_standard_input(filled: Path, verb: str) -> None:
    done = run(verb, filled, "--schema", "nothing.jsonl")
    assert done.exit_code == 2 and "nothing.jsonl can't be read: No such file or directory" in done.stderr
    assert "standard input" not in done.stderr
