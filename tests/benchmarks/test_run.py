"""The whole program at tiny sizes: every part measures, every target has a row, and only --write writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import (
    backlog,
    end_to_end,
    footprint,
    growth,
    latency,
    objects,
    peer_rates,
    producer,
    puts,
    run,
    sustained,
)
from benchmarks.document import write_section
from benchmarks.events import Shape, bodies
from benchmarks.ours import BATCHES
from benchmarks.parts import PARTS
from benchmarks.rounds import Contestant, Figures, Group, Plan
from benchmarks.targets import TARGETS

TINY = Plan(rounds=1, seconds=0.002, sustained_seconds=0.002, backlogs_events=(2_000,), large_backlog_events=1_000_000)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, list[Group]]:
    """The groups of all parts, of the full plan and of the other one; no backlog grows for them."""
    directory = tmp_path_factory.mktemp("groups")
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(backlog.Backlog, "grow", lambda *_: None)
        plans = {full: Plan(full=full) for full in (False, True)}
        return {full: [g for part in PARTS.values() for g in part.groups(p, directory)] for full, p in plans.items()}


@pytest.mark.parametrize("full", [False, True])
def test_every_target_is_measured_by_some_group(groups: dict[bool, list[Group]], full: bool) -> None:
    assert {t.group for t in TARGETS} <= {group.name for group in groups[full]}


def test_who_is_compared_for_a_target_takes_part(groups: dict[bool, list[Group]]) -> None:
    named = {group.name: group for group in groups[False]}
    for target in TARGETS:
        assert {*target.contestants, *target.against} <= set(named[target.group].contestants), target.what
        floor = named[target.group].floor
        assert not floor or floor in named[target.group].contestants


@pytest.mark.parametrize("full", [False, True])
def test_no_two_parts_have_a_group_of_the_same_name(groups: dict[bool, list[Group]], full: bool) -> None:
    found = [group.name for group in groups[full]]
    assert len(set(found)) == len(found)


def test_bodies_have_their_size_and_are_different() -> None:
    for size in (1, 100, 16 << 10):
        assert {len(body) for body in bodies(20, size)} == {size}
    assert len(set(bodies(1_000, 100))) == 1_000


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_a_part_measures_and_writes_its_section(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "_AGE_SECONDS", 0.01)
    monkeypatch.setattr(producer, "_AGE_SECONDS", 0.01)
    monkeypatch.setattr(peer_rates, "TRANSACTIONS", (1,))
    monkeypatch.setattr(puts, "_SOME", puts._SOME[:1])
    monkeypatch.setattr(end_to_end, "_DISK_SHAPES", (Shape(10, 100),))
    monkeypatch.setattr(end_to_end, "_MEMORY_SHAPES", (Shape(10, 100),))
    monkeypatch.setattr(objects, "SLOTS", 200)
    monkeypatch.setattr(sustained, "_FILES_BYTES", 1 << 20)
    monkeypatch.setattr(objects, "WRITER_COUNTS", (1, 2))
    monkeypatch.setattr(latency, "_SOME", (Shape(1, 100),))
    monkeypatch.setattr(growth, "AXES", {axis: sizes[:2] for axis, sizes in growth.AXES.items()})
    places = tmp_path / "work", tmp_path / "docs"
    for place in places:
        place.mkdir()
    found = run.run([name], TINY, places[0])
    assert found.broken == {} and found.parts[name]
    for comparison in found.parts[name]:  # peers may be missing here, the floor and the channel never
        assert not {comparison.floor, BATCHES} & comparison.failures.keys(), comparison.failures
    assert list(places[0].iterdir()) == []
    run.write(found, name, places[1], "a machine")
    assert PARTS[name].title in (places[1] / "benchmarks.md").read_text()
    assert list(json.loads((places[1] / "benchmarks.json").read_text())) == [name]
    for file, _ in PARTS[name].pictures:
        assert (places[1] / "pictures" / file).exists()


def test_targets_are_written_if_all_parts_ran(tmp_path: Path) -> None:
    took = dict.fromkeys(PARTS, 2.0)
    found = run.Run(Plan(), tuple(PARTS), {name: [] for name in PARTS}, took_seconds=took)
    run.write(found, "put", tmp_path, "a machine")
    text = (tmp_path / "benchmarks.md").read_text()
    assert f"0 of {len(TARGETS)} targets are met" in text and "What is not claimed" in text
    assert text.index("What is aimed at") < text.index(PARTS["put"].title)
    assert f"`make bench`, {2 * len(PARTS)} s." in text and "was cut off" not in text
    written = json.loads((tmp_path / "benchmarks.json").read_text())
    assert {o["verdict"] for o in written["targets"]["outcomes"]} == {"not measured"}


def test_what_was_measured_before_a_run_is_cut_off_is_written_and_the_document_says_what_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def group(name: str, *contestants: Contestant) -> Group:
        return Group(name, f"Group {name}", "", "", {str(i): c for i, c in enumerate(contestants)}, 1)

    def measured(_: Path) -> Figures:
        return {"put": 1.0}

    def cut_off(_: Path) -> Figures:
        raise KeyboardInterrupt

    parts = {
        "put": run.Part("Puts", "How.", lambda *_: iter([group("a", measured)])),
        "memory": run.Part("Memory", "How.", lambda *_: iter([group("b", measured), group("c", measured, cut_off)])),
        "peers": run.Part("Peers", "How.", lambda *_: iter([group("d", measured)])),
    }
    monkeypatch.setattr(run, "PARTS", parts)
    write_section("peers", "## Peers of another run", {"old": 1}, tmp_path)

    def keep(found: run.Run, name: str) -> None:
        run.write(found, name, tmp_path, "a machine")

    with pytest.raises(KeyboardInterrupt):
        run.run(parts, TINY, tmp_path, keep)
    text = (tmp_path / "benchmarks.md").read_text()
    targets, puts_, memory, peers = text.split("<!-- end -->")[:4]
    assert "This run was cut off, or is under way.** It did not come to the end of: memory, peers." in targets
    assert "Group a" in puts_ and "Unfinished" not in puts_
    assert "Group b" in memory and "Group c" not in memory and "**Unfinished:** the run was cut off" in memory
    assert "Peers of another run" in peers
    assert sorted(json.loads((tmp_path / "benchmarks.json").read_text())) == ["memory", "peers", "put", "targets"]


def test_a_part_that_breaks_is_said_and_the_others_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object):
        raise OSError("the disk is full")
        yield

    parts = {"put": run.Part("Puts", "", broken), "peers": run.Part("Peers", "", lambda *_: iter(()))}
    monkeypatch.setattr(run, "PARTS", parts)
    found = run.run(["put", "peers"], TINY, tmp_path)
    assert found.broken == {"put": "OSError: the disk is full"} and found.parts == {"put": [], "peers": []}


@pytest.mark.parametrize("write", [pytest.param(False, marks=pytest.mark.slow), True])
def test_only_write_writes(write: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puts, "_SOME", puts._SOME[:1])
    docs, work = tmp_path / "docs", tmp_path / "work"
    docs.mkdir()
    work.mkdir()
    command = ["run", "put", "--rounds=1", "--seconds=0.001", f"--directory={work}", f"--docs={docs}"]
    monkeypatch.setattr("sys.argv", [*command, *(["--write"] if write else [])])
    run.main()
    wanted = {"benchmarks.md", "benchmarks.json", "pictures"} if write else set()
    assert {path.name for path in docs.iterdir()} == wanted
    assert list(work.iterdir()) == []


def test_less_seconds_change_what_is_sustained_in_proportion() -> None:
    assert run._plan(False, None, None) == Plan()
    found = run._plan(False, 1, Plan().seconds / 10)
    assert (found.rounds, found.sustained_seconds) == (1, Plan().sustained_seconds / 10)
