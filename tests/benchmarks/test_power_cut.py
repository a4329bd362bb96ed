"""The power-cut table: that its verdicts are right, and that its power cuts do cut."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.power_cut import machine, mounts
from benchmarks.power_cut.cycle import run_cycle
from benchmarks.power_cut.ledger import Ledger, Verdict, bodies, judge
from benchmarks.power_cut.mounts import MountError, is_mounted, kernel_log
from benchmarks.power_cut.rows import ROWS
from benchmarks.power_cut.table import cell

SEED = "a seed"
FIRST, SECOND = bodies(SEED, 1), bodies(SEED, 2)
STORED = b"put 1 %d\nstored 1 5\nput 2 %d\n" % (len(FIRST), len(SECOND))


def verdict(text: bytes, found: list[bytes], certain: int | None = None, **more: object) -> Verdict:
    ledger = Ledger.parse(text, len(text) if certain is None else certain)
    return judge(ledger, SEED, found, **more)  # type: ignore[arg-type]


def test_all_is_well_when_what_was_acknowledged_is_there() -> None:
    assert verdict(STORED, FIRST) == Verdict(acknowledged=len(FIRST))
    assert verdict(STORED, FIRST + SECOND) == Verdict(acknowledged=len(FIRST))  # it was under way


def test_what_is_missing_is_lost() -> None:
    assert verdict(STORED, FIRST[1:]).lost == 1
    assert verdict(STORED, []).lost == len(FIRST)


def test_losses_that_the_product_names_are_counted_apart() -> None:
    found = verdict(STORED, [], reported=[(1, 4), (5, 5)])
    assert (found.lost, found.reported) == (len(FIRST), 1)


def test_what_nobody_put_was_altered() -> None:
    found = verdict(STORED, [FIRST[0][:-1] + b"?", *FIRST[1:]])
    assert (found.lost, found.altered) == (1, 1)


def test_an_event_that_is_found_again_was_duplicated() -> None:
    assert verdict(STORED, FIRST + FIRST[:1]).duplicated == 1


def test_what_was_acknowledged_after_the_cut_proves_nothing() -> None:
    late = STORED + b"stored 2 9\n"
    assert verdict(late, FIRST, certain=len(STORED)).acknowledged == len(FIRST)
    assert verdict(late, FIRST).lost == len(SECOND)


def test_what_was_taken_may_be_gone_and_must_not_come_back() -> None:
    taken = STORED + b"take 1\ntaken 1:0\n"
    assert verdict(taken, FIRST[1:]) == Verdict(acknowledged=len(FIRST), taken=1)
    assert verdict(taken, FIRST).came_back == 1


def test_a_take_under_way_may_or_may_not_have_been_done() -> None:
    for under_way in (STORED + b"take 1\n", STORED + b"take 1\ntaken 1:0\n"):
        for found in (FIRST, FIRST[1:]):
            assert verdict(under_way, found, certain=len(STORED)) == Verdict(acknowledged=len(FIRST))


def test_an_error_is_counted_beside_what_could_be_read() -> None:
    found = verdict(STORED, FIRST[:1], error="EOFError")
    assert (found.unreadable, found.lost) == (1, len(FIRST) - 1)


def test_a_cell_adds_up_and_names_only_what_happened() -> None:
    fine = Verdict(acknowledged=1_000, taken=3)
    assert cell([fine, fine]) == "none of 2,000"
    bad = Verdict(unreadable=1, acknowledged=10, lost=7, altered=1, duplicated=2, taken=4, came_back=3)
    said = "**7** of 1,010; unreadable after 1 of 2; 3 of 7 takes came back; 1 altered; 2 twice"
    assert cell([fine, bad]) == said
    assert cell([Verdict(acknowledged=10, lost=7, reported=7)]) == "**7** of 10, all reported"
    assert cell([Verdict(acknowledged=10, lost=7, reported=3)]) == "**7** of 10, 3 reported"


def test_rows_have_names_of_their_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.fixture(scope="module")
def power() -> None:
    """Skip where the power can't be cut."""
    if why := machine.missing():
        pytest.skip(why)


MOUNTS_ALONE = """
import sys
from pathlib import Path
from benchmarks.power_cut.mounts import mount
mount("tmpfs", Path(sys.argv[1]), "size=65536", "tmpfs")
input("mounted")
"""


@pytest.mark.usefixtures("power")
def test_what_a_process_mounts_is_in_no_other_mount_namespace(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MOUNTS_ALONE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.read(7) == b"mounted"
        assert str(tmp_path) in Path(f"/proc/{other.pid}/mountinfo").read_text()
        assert not is_mounted(tmp_path)


@pytest.mark.usefixtures("power")
def test_a_disk_that_another_mount_namespace_keeps_alive_is_not_mounted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_PATIENCE_SECONDS", 0.2)
    with machine.scratch() as place, machine.machine("ext4", place) as made:
        with subprocess.Popen(["unshare", "--mount", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as copy:
            assert copy.stdin is not None and copy.stdout is not None
            copy.stdin.write(b"?")
            copy.stdin.flush()
            assert copy.stdout.read(1) == b"?"  # the namespace is created
            made.cut()
            with pytest.raises(MountError, match=f"is unmounted, and /dev/loop.* still has .*{copy.pid}"):
                made.boot()
        made.boot()
        assert list(made.disk.parent.iterdir())


@pytest.mark.usefixtures("power")
@pytest.mark.slow
@pytest.mark.parametrize("kind", machine.KINDS)
def test_who_does_not_sync_loses_and_the_channel_does_not(kind: str) -> None:
    rows = {row.name: row for row in ROWS}

    def cuts(name: str) -> Verdict:
        return Verdict.total(run_cycle(rows[name], kind, f"vacuity {i}") for i in range(4))

    assert cuts("file-unsynced").lost > 10
    found = cuts("file-synced")
    assert (found.lost, found.errors) == (0, ()), kernel_log()
    found = cuts("spillable_stream-disk")
    assert (found.lost, found.altered, found.duplicated, found.came_back, found.errors) == (0, 0, 0, 0, ())
    assert found.acknowledged > 20
    found = cuts("spillable_stream-memory")
    assert found.lost == found.reported > 20
    assert (found.altered, found.duplicated, found.came_back, found.errors) == (0, 0, 0, ())
