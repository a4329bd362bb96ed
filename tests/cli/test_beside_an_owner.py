"""Each verb beside a process that owns a group and is killed in the middle: it works, or refuses in one sentence.

Nothing is lost by that, and nothing comes twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from typer.testing import CliRunner

from spillable_stream import Channel
from spillable_stream.cli import app
from tests.support import pythons
from tests.support.events import numbered, put

EVENTS = 200
PROGRAM = """
import sys
import spillable_stream as ss

channel = ss.Channel(sys.argv[1])
owned = channel.consumer("g")
for line in sys.stdin:
    with channel.take_transaction("g") as tx:
        taken = [event.body.decode() for event in tx.take_many(10)]
    print(*taken, flush=True)
    tx = channel.take_transaction("g").__enter__()  # never committed
    tx.take_many(7)
    print("more", flush=True)
    if line == "hold\\n":
        sys.stdin.read()
    tx.rollback()
    tx.close()
"""


class Owner:
    """A process that owns the group ``g``, takes ten events whenever it is asked, and has seven more in its hands."""

    def __init__(self, path: Path) -> None:
        self._process = pythons.Popen(
            [sys.executable, "-c", PROGRAM, str(path)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.taken: list[str] = []

    def _pipe(self, found: IO[str] | None) -> IO[str]:
        assert found is not None
        return found

    def take(self, then: str = "go on") -> None:
        """Take and commit ten events, and take seven more."""
        said = self._pipe(self._process.stdin)
        said.write(f"{then}\n")
        said.flush()
        answers = self._pipe(self._process.stdout)
        self.taken += answers.readline().split()
        assert answers.readline() == "more\n"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def owner(path: Path) -> Iterator[Owner]:
    with Channel(path, minimum_required_space=0, memory_capacity=50, retention_bytes=10**9) as channel:
        channel.port().create_group("g", "earliest")
        put(channel, *numbered(0, EVENTS // 2))
        put(channel, *numbered(EVENTS // 2, EVENTS // 2))
    found = Owner(path)
    found.take()
    yield found
    found.kill()


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    return done.exit_code, done.stdout + done.stderr


def rest_of(path: Path) -> list[str]:
    status, said = run("take", path, "--group", "g", "--max", 10 * EVENTS)
    assert status == 0, said
    return [line for line in said.splitlines() if line.isdigit()]


def all_once(owner: Owner, path: Path) -> bool:
    """Tell whether what the owner took and what the group takes now is everything, once."""
    return sorted(owner.taken + rest_of(path), key=int) == [str(i) for i in range(EVENTS)]


LOOKS = [
    ["stats"],
    ["tail", "-n", "3"],
    ["verify"],
]
SLOW_LOOKS = [
    ["stats", "--json"],
    ["describe"],
    ["groups", "list"],
    ["top", "--once", "--interval", "0.1"],
]


@pytest.mark.parametrize("verb", [*LOOKS, *(pytest.param(v, marks=pytest.mark.slow) for v in SLOW_LOOKS)], ids=" ".join)
def test_a_look_works_while_the_group_is_owned_and_after_a_kill(verb: list[str], owner: Owner, path: Path) -> None:
    looked = [part for part in verb[:2] if not part.startswith("-")] if verb[0] == "groups" else verb[:1]
    for _ in range(2):
        status, said = run(*looked, path, *verb[len(looked) :])
        assert status == 0, said
        owner.take("hold")
        owner.kill()
        owner.take = lambda then="": None  # type: ignore[method-assign]
    assert all_once(owner, path)


@pytest.mark.parametrize(
    ("verb", "refused", "status"),
    [
        (["groups", "seek", "{path}", "g", "earliest"], "is owned by pid", 1),
        pytest.param(
            ["groups", "seek", "{path}", "g", "latest", "--yes"], "is owned by pid", 1, marks=pytest.mark.slow
        ),
        (["groups", "drop", "{path}", "g", "--yes"], "is owned by pid", 1),
        (["repair", "{path}", "--yes"], "close it everywhere, then repair it", 2),
        pytest.param(["restore", "{copy}", "{path}", "--new-identity"], "is there", 1, marks=pytest.mark.slow),
        (["restore", "{copy}", "{path}-2"], "two channels of one identity", 1),
    ],
    ids=["seek back", "seek forward", "drop", "repair", "restore over it", "restore beside it"],
)
def test_what_would_take_the_group_or_the_channel_away_is_refused_in_one_sentence(
    verb: list[str], refused: str, status: int, owner: Owner, path: Path, tmp_path: Path
) -> None:
    assert run("backup", path, tmp_path / "copy")[0] == 0
    arguments = [part.format(path=path, copy=tmp_path / "copy") for part in verb]
    found, said = run(*arguments)
    assert found == status and refused in said, said
    assert len(said.strip().splitlines()) == 1 and "Traceback" not in said
    owner.take("hold")
    owner.kill()
    assert len(owner.taken) == 20
    assert all_once(owner, path), "the refusal changed nothing"


@pytest.mark.slow  # it waits for ten seconds
def test_a_take_as_the_same_group_is_refused_until_the_owner_is_killed(owner: Owner, path: Path) -> None:
    status, said = run("take", path, "--group", "g", "--max", "3")
    assert status == 1 and f"is owned by pid {owner.pid} " in said
    owner.take("hold")
    owner.kill()
    assert all_once(owner, path)


@pytest.mark.parametrize(
    ("verb", "comes_again"),
    [
        pytest.param(["groups", "seek", "{path}", "g", "earliest"], EVENTS, marks=pytest.mark.slow),
        (["groups", "seek", "{path}", "g", "16"], EVENTS - 15),
        pytest.param(["groups", "seek", "{path}", "g", "latest", "--yes"], 0, marks=pytest.mark.slow),
        (["groups", "drop", "{path}", "g", "--yes"], 0),
        (["repair", "{path}"], EVENTS - 20),
        pytest.param(["alter", "{path}", "-o", "keepAlive=5"], EVENTS - 20, marks=pytest.mark.slow),
        (["backup", "{path}", "{copy}"], EVENTS - 20),
        pytest.param(["export", "{path}", "{copy}.parquet"], EVENTS - 20, marks=pytest.mark.slow),
        pytest.param(["groups", "create", "{path}", "other"], EVENTS - 20, marks=pytest.mark.slow),
    ],
    ids=["seek back", "seek to an ID", "seek forward", "drop", "repair", "alter", "backup", "export", "create a group"],
)
def test_after_a_kill_each_verb_works_and_the_group_continues_from_where_it_says(
    verb: list[str], comes_again: int, owner: Owner, path: Path, tmp_path: Path
) -> None:
    owner.take("hold")
    owner.kill()
    status, said = run(*[part.format(path=path, copy=tmp_path / "copy") for part in verb])
    assert status == 0, said
    if "drop" in verb:
        with Channel(path, create=False) as channel:
            assert "g" not in channel.stats().groups
        return
    assert rest_of(path) == [str(i) for i in range(EVENTS - comes_again, EVENTS)]
    assert run("verify", path)[0] == 0


def test_a_backup_beside_the_owner_has_what_it_had_taken_by_then_and_not_what_it_holds(
    owner: Owner, path: Path, tmp_path: Path
) -> None:
    assert run("backup", path, tmp_path / "copy")[0] == 0
    before = list(owner.taken)
    owner.take()
    assert run("restore", tmp_path / "copy", tmp_path / "second", "--new-identity")[0] == 0
    assert sorted(before + rest_of(tmp_path / "second"), key=int) == [str(i) for i in range(EVENTS)]
    owner.take("hold")
    owner.kill()
    assert all_once(owner, path)


def test_a_channel_that_is_moved_from_under_its_owner_is_whole_at_its_new_place(
    owner: Owner, path: Path, tmp_path: Path
) -> None:
    owner.take("hold")
    path.rename(tmp_path / "moved")
    owner.kill()
    assert run("stats", path)[0] == 2
    assert all_once(owner, tmp_path / "moved")
    assert run("verify", tmp_path / "moved")[0] == 0
