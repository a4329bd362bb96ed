"""The order of system calls: written, synced, named, the name synced, and only then acknowledged or relied upon.

The same audit reads what the package asks of the operating system, recorded inside its process, and
what strace saw from outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.lab import mutants
from tests.lab.calls import NEEDS_STRACE, Call, Recorder, read_trace, strace, watching
from tests.lab.keeping import upkeep_by_hand
from tests.lab.ledger import Ledger, LedgerFile
from tests.lab.subject import KEEPING, subject

ROUNDS, SEED = 3, 5


@pytest.fixture(scope="module", params=["recorded", pytest.param("strace", marks=NEEDS_STRACE)])
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """What the program did on disk, with the lines of its ledger in between."""
    directory = tmp_path_factory.mktemp("traced")
    return record(directory) if request.param == "recorded" else trace(directory)


def test_nothing_is_acknowledged_relied_upon_or_removed_too_early(traced: list[Call]) -> None:
    assert len([c for c in traced if c.more.startswith("ack")]) > 10
    assert audit(traced) == []


def test_memory_changes_nothing_about_the_order_on_disk(tmp_path: Path) -> None:
    assert audit(record(tmp_path, "small memory")) == []


@pytest.mark.parametrize("configuration", [f"{KEEPING}disk", f"{KEEPING}small memory"])
def test_what_is_kept_and_let_go_changes_nothing_about_the_order(tmp_path: Path, configuration: str) -> None:
    assert audit(record(tmp_path, configuration)) == []


def test_a_channel_comes_into_being_whole(traced: list[Call]) -> None:
    """Its directories and their owner files, its first data file, and last its identity: each durable in turn."""
    before, after = order(traced, "open")[0].split("rename channel.json")
    owned = "create owner.json.tmp, write owner.json.tmp, sync owner.json.tmp, rename owner.json, sync"
    made = [f"{owned} channel", "mkdir groups, sync channel"]
    made += [f"mkdir {name}, sync channel.*{owned} {name}" for name in ("data", "checkpoint")]
    written = "create log, write log, sync log, sync data, create channel.json.tmp, write channel.json.tmp"
    assert re.search(".*".join(["mkdir channel", *made, f"{written}, sync channel.json.tmp"]), before)
    assert after.startswith(", sync channel, ")


def test_a_commit_is_written_then_synced_then_acknowledged(traced: list[Call]) -> None:
    for steps in order(traced, "put_small"):
        assert steps.removeprefix(ROLL).endswith("said put, write log, sync log, said ack")


def test_a_take_is_written_then_synced_then_acknowledged(traced: list[Call]) -> None:
    freed = "(, unlink checkpoint, sync checkpoint)?(, unlink segment, sync data)?(, rename spare, sync data)?"
    for steps in order(traced, "take_some"):
        assert re.fullmatch(f"(said take, write log, sync log{freed}, said ack)?", steps.removeprefix(ROLL)), steps


def test_a_file_that_is_used_again_has_its_new_name_durably_before_a_byte_is_written(traced: list[Call]) -> None:
    again = "rename log, sync data, write log, sync log, sync data"
    assert any(again in steps for steps in order(traced, "use_again"))
    for steps in order(traced, "use_again"):
        assert not re.search("rename log, (?!sync data, write log)", steps)


def test_a_segment_that_is_staged_in_again_is_cut_before_it_is_synced_and_adopted(traced: list[Call]) -> None:
    again = "rename segment, create segment, write segment, truncate segment, sync segment, sync data, write log"
    assert again in order(traced, "stage_again")[0]


def test_a_staged_transaction_and_its_name_are_durable_before_the_commit_that_adopts_it(traced: list[Call]) -> None:
    for steps in order(traced, "put_staged"):
        staged, committed = steps.split("sync segment, sync data")
        assert re.search("create segment, write segment, (truncate segment, )?$", staged.removeprefix(ROLL))
        assert committed.endswith("write log, sync log, said ack")


def test_a_new_data_file_and_its_name_are_durable_before_anything_is_appended(traced: list[Call]) -> None:
    for steps in order(traced, "roll"):
        assert steps == "create log, write log, sync log, sync data, truncate log"


def test_a_checkpoint_and_its_name_are_durable_before_what_a_replay_needs_is_removed(traced: list[Call]) -> None:
    pattern = (
        "(unlink segment, sync data, )?"
        "create checkpoint.tmp, write checkpoint.tmp, sync checkpoint.tmp, rename checkpoint, sync checkpoint"
        "(, unlink checkpoint)?(, sync checkpoint)?(, unlink log, sync data)?"
        "(, unlink spare, sync data)?"
    )
    found = order(traced, "checkpoint")
    assert all(re.fullmatch(pattern, steps) for steps in found), found
    assert not any(re.search("unlink checkpoint(?!.*, sync checkpoint).*, unlink log", steps) for steps in found), found
    assert any("unlink log" in steps for steps in found), "no data file was removed"


@pytest.mark.parametrize(
    "mutant",
    [
        "skip the sync",
        "skip the directory sync",
        "rename before the sync",
        "acknowledge before the sync",
        "unlink early",
    ],
)
def test_the_audit_notices_a_package_that_does_it_otherwise(tmp_path: Path, mutant: str) -> None:
    assert system_calls(tmp_path, mutant) != []


# ── the program, and what it did ────────────────────────────────────────────────────────────────


def run(path: Path, ledger: Ledger, configuration: str = "disk") -> None:
    """Do every step, and say in the ledger which comes next."""
    for step in subject(configuration).program(path, ledger, ROUNDS, SEED).steps():
        ledger.write("step", step.__name__)
        step()


def record(directory: Path, configuration: str = "disk") -> list[Call]:
    """Return what the program does, recorded in this process, and what it publishes."""
    recorder = Recorder()
    with upkeep_by_hand(), watching(recorder):
        run(directory / "channel", recorder, configuration)
    return list(_on_disk(recorder.calls, directory))


def trace(directory: Path) -> list[Call]:
    """Return what the program does, seen by strace."""
    ledger = directory / "ledger"
    program = f"from tests.crash.test_system_calls import main; main({str(directory / 'channel')!r}, {str(ledger)!r})"
    assert strace(["-c", program], directory / "trace") == 0
    calls = (
        Call("ledger", "", c.more.strip()) if c.path == str(ledger) and c.name == "write" else c
        for c in read_trace(directory / "trace", directory)
        if c.name != "open" or c.more
    )
    return list(_on_disk(calls, directory))


def main(path: str, ledger: str) -> None:
    """Do every step, for strace to see."""
    run(Path(path), LedgerFile(Path(ledger)))


def _on_disk(calls: Any, directory: Path) -> Iterator[Call]:
    """Yield what says, changes or syncs something on disk, with paths relative to the directory."""
    for call in calls:
        if call.name in ("lock", "close", "fallocate") or (call.name == "open" and not call.more):
            continue
        if not call.path or call.name == "publish":
            yield call
        elif Path(call.path).is_relative_to(directory):
            yield call._replace(path=str(Path(call.path).relative_to(directory)))


def order(calls: list[Call], step: str) -> list[str]:
    """Return what each step of a name did, in short: "write log, sync log, said ack"."""
    found: list[list[str]] = []
    wanted = False
    for call in calls:
        if call.name == "ledger" and call.more.startswith("step "):
            if wanted := call.more == f"step {step}":
                found.append([])
        elif wanted and (short := _short(call)):
            found[-1].append(short)
    return [", ".join(word for word, _ in groupby(words)) for words in found]


ROLL = "create log, write log, sync log, sync data, truncate log, "
_SMALL = re.compile(r"head|.*lock|.*\.position|memory.*")  # they are caches, notes or locks, and never synced


def _short(call: Call) -> str:
    name = Path(call.path).name
    if call.name in ("publish", "symlink") or _SMALL.fullmatch(name):
        return ""
    if call.name == "ledger":
        return f"said {call.more.split()[0]}"
    if call.name == "unlink" and name.endswith(".tmp"):  # left by nobody
        return ""
    kind = re.sub(r"^(?:spare-)?(log|checkpoint)-[\d-]+|^segment\..*", lambda m: m[1] or "segment", name)
    kind = "spare" if name.startswith("spare-") else kind
    return f"{'create' if call.name == 'open' else call.name} {kind}"


# ── the audit ───────────────────────────────────────────────────────────────────────────────────


def system_calls(directory: Path, mutant: str = "") -> list[str]:
    """Return what is wrong with the order of the programs' calls, with and without a memory tier."""
    wrong: list[str] = []
    with mutants.broken(mutant):
        for configuration in ("disk", "small memory", f"{KEEPING}disk"):
            (directory / configuration).mkdir()
            wrong += audit(record(directory / configuration, configuration))
    return wrong


def audit(calls: list[Call]) -> list[str]:
    """Return what is wrong with the order of some calls; nothing if whatever counts is durable when it does."""
    wrong, seen = [], _Seen()
    for i, call in enumerate(calls):
        if problem := seen.problem(call):
            wrong.append(f"call {i}, {call.name} {call.path} {call.more}: {problem}")
        seen.note(call)
    return wrong


class _Seen:
    """What is on its way to the disk."""

    def __init__(self) -> None:
        self._data: set[str] = set()  # files with data that are not synced
        self._names: set[str] = set()  # names whose directories are not synced
        self._newest = ""  # data file
        self._headers: set[int] = set()  # of data files that were durable once, with their names
        self._checkpoints: set[str] = set()  # that there are, or may be again after a power cut
        self._unlinked: set[str] = set()  # those whose end is not synced

    def problem(self, call: Call) -> str:
        """Return what should have been synced before a call."""
        kind, path = call.name, call.path
        if (kind == "ledger" and call.more.startswith("ack")) or (kind == "publish" and call.more == "CLEAN"):
            return self._may_be_lost(self._names | {f for f in self._data if "/log-" in f}, "/data/")
        if kind == "rename" and path.endswith("/channel.json"):
            return self._may_be_lost(self._names | self._data, "", f"{path}.tmp") or self._unsynced(call.more)
        gone = path if kind == "unlink" else call.more if kind == "rename" else ""
        if (number := _number(gone)) and (why := self._needed(number)):
            return why
        if kind == "rename":
            return "" if number else self._unsynced(call.more)
        if kind == "write" and "/data/" in path:
            if path in self._names and path in self._data and "/log-" in path:
                return "it has no durable header yet"
            return self._may_be_lost(self._names, "/data/", path)
        return ""

    def _needed(self, number: int) -> str:
        """Return why a data file may not go: a replay may begin at a checkpoint in it, or at no later file."""
        if any(int(Path(c).name.split("-")[1]) <= number for c in self._checkpoints):
            return "a checkpoint needs it"
        return "" if any(later > number for later in self._headers) else "no later file makes it unneeded"

    def _may_be_lost(self, files: set[str], where: str, besides: str = "") -> str:
        left = sorted(f for f in files if where in f and f != besides)
        return f"{left} may be lost" if left else ""

    def _unsynced(self, path: str) -> str:
        name = Path(path).name
        return f"the data of {name} may be lost" if name in {Path(f).name for f in self._data} else ""

    def note(self, call: Call) -> None:
        """Note what a call makes durable, or leaves to be."""
        kind, path = call.name, call.path
        if kind == "sync":
            self._data.discard(path)
            self._names = {n for n in self._names if str(Path(n).parent) != path}
            self._checkpoints -= {c for c in self._unlinked if str(Path(c).parent) == path}
            if self._newest not in self._names | self._data:
                self._headers.add(_number(self._newest))
        elif _SMALL.fullmatch(Path(path).name) or "/" not in path:
            return
        elif kind == "write" or (kind == "truncate" and path == self._newest):  # only space depends on the others'
            self._data.add(path)
        elif kind in ("open", "mkdir", "rename"):
            self._names.add(path)
            self._newest = path if "/log-" in path else self._newest
        elif kind == "unlink":
            self._data.discard(path)
            self._names.discard(path)
        if "/checkpoint/checkpoint-" in path and not path.endswith(".tmp"):
            if kind == "rename":
                self._checkpoints.add(path)
            elif kind == "unlink":
                self._unlinked.add(path)


def _number(path: str) -> int:
    """Return the number of a data file, 0 for any other file."""
    found = re.fullmatch(r"log-(\d+)", Path(path).name)
    return int(found[1]) if found else 0
