"""The command line: what it prints, and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from spillable_stream import Channel, Event
from spillable_stream.cli import app
from spillable_stream.format.frame import FrameType
from spillable_stream.objects import open_store
from spillable_stream.objects.slots import slot_key
from tests.support import command_line, pythons
from tests.support.channels import fill, snapshot, spread, three_puts
from tests.support.damage import flip, frames, log_file, offsets
from tests.support.events import put, take
from tests.support.lying_store import OverwritingStore
from tests.support.mounts import unmount


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_a_healthy_channel_is_status_0(path: Path) -> None:
    fill(path)
    for verb in ("verify", "repair"):
        done = run(verb, path)
        assert (done.exit_code, done.stderr) == (0, "")
        assert f"{path}: healthy" in done.stdout and "lose" not in done.stdout


def test_a_process_that_names_files_in_ascii_verifies_a_channel_with_other_letters(path: Path) -> None:
    def said(*options: str) -> tuple[int, bytes]:
        environment = {**os.environ, "PYTHONPATH": str(command_line.ROOT), **command_line.ASCII_FILES}
        done = command_line.start("verify", path, *options, stdout=subprocess.PIPE, env=environment)
        return done.wait(), done.communicate()[0]

    with Channel(path, memory_capacity=100, overflow_capacity=100) as channel:
        put(channel, b"a", b"b")
        take(channel, 1, "grüße")
        status, out = said()
        assert status == 0 and f"{path}: healthy".encode() in out and b"not the channel's" not in out
    (position,) = (path / "groups").glob("*.position")
    flip(position, 5)
    status, out = said("--json")
    assert status == 0 and "grüße.position" in out.decode() and "the group's position is damaged" in out.decode()


def test_damage_is_status_1_with_file_offset_events_and_what_a_repair_would_lose(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    done = run("verify", path)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"damage: {log_file(path)}, offset {at[1]}, ")
    assert lines[0].endswith("the payload of a PUT frame is damaged; events 3 to 4; transactions 2")
    assert lines[1] == "repair would lose 2 events, 3 to 4"
    assert lines[2].startswith(f"{path}: damaged (")


def test_a_repair_is_status_0_and_says_what_was_lost_and_where_the_copies_are(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    done = run("repair", path, "--yes")
    assert done.exit_code == 0
    assert "repair did lose 2 events, 3 to 4" in done.stdout
    (quarantine,) = (path / "quarantine").iterdir()
    assert done.stdout.splitlines()[-1] == f"{path}: repaired; what was damaged is in {quarantine}"
    assert run("verify", path).exit_code == 0


def test_a_seek_that_is_destroyed_is_named(path: Path) -> None:
    with Channel(path, retention_bytes=1 << 20, checkpoint_on_close=False, minimum_required_space=0) as channel:
        put(channel, b"1", b"2", b"3")
        take(channel, 3)
        channel.seek("default", 2)
    seek = [f for f in frames(path) if f.header.type == FrameType.GROUP][-1]
    flip(log_file(path), seek.offset + 50)
    said = "not give the group 'default' again what a seek may have moved it back to: among 1 to 3"
    assert f"repair would {said}" in run("verify", path).stdout
    assert f"repair did {said}" in run("repair", path).stdout


def test_what_cannot_be_repaired_is_status_1(path: Path) -> None:
    three_puts(path)
    log_file(path).unlink()
    assert run("verify", path).exit_code == 1
    done = run("repair", path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "can't be repaired: the channel has no data files" in done.stderr


def test_what_cannot_be_told_is_status_2(path: Path, open_channel: Callable[..., Channel]) -> None:
    done = run("verify", path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"NotAChannelError: {path} is not a channel: it is missing; check the path")
    assert run("verify").exit_code == 2
    assert run("heal", path).exit_code == 2
    open_channel()
    done = run("repair", path)
    assert done.exit_code == 2 and "ChannelBusyError" in done.stderr


def test_json_is_one_object_of_a_stable_shape(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 20)
    done = run("verify", "--json", path)
    said = json.loads(done.stdout)
    assert done.exit_code == 1
    assert set(said) == {
        "path", "channel", "healthy", "findings", "loss", "checked", "unrepairable", "quarantine",
        "unowned",
    }  # fmt: skip
    (finding,) = said["findings"]
    assert finding == {
        "severity": "damage",
        "path": str(log_file(path)),
        "offset": at[1],
        "size": finding["size"],
        "text": "no frame is whole here",
        "events": [[3, 4]],
        "transactions": [2],
    }
    assert said["loss"] == {
        "lost": [[3, 4]], "count": 2, "doubtful": [], "repeated": {"default": [[2, 2]]}, "kept": [], "skipped": {},
        "partial": [], "redelivered": 0, "delayed": 0,
    }  # fmt: skip
    assert set(said["checked"]) == {"files", "frames", "bytes"}
    said = json.loads(run("repair", "--json", "--yes", path).stdout)
    assert said["quarantine"] and not said["healthy"]
    assert json.loads(run("repair", "--json", path).stdout)["healthy"]


def test_an_error_as_json_is_one_object_too(path: Path) -> None:
    done = run("repair", "--json", path)
    assert done.exit_code == 2
    assert json.loads(done.stdout) == {
        "path": str(path),
        "error": "NotAChannelError",
        "text": f"{path} is not a channel: it is missing; check the path, and that its disk is mounted; "
        "'spillable create' creates a new one",
    }


@pytest.mark.parametrize("damaged", [False, True])
def test_the_package_is_a_program(path: Path, damaged: bool) -> None:
    at = three_puts(path)
    if damaged:
        flip(log_file(path), at[0] + 60)
    done = pythons.run(
        [sys.executable, "-m", "spillable_stream", "verify", path],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (int(damaged), "")
    assert ("damaged (" if damaged else "healthy (") in done.stdout


def test_a_sound_store_is_status_0(tmp_path: Path) -> None:
    done = run("check-store", f"object+file://{tmp_path}/orders", "--races", 3)
    assert (done.exit_code, done.stderr) == (0, "")
    tried = "8 writers raced for each of 3 objects, and at most 1 won"
    assert done.stdout == f"object+file://{tmp_path}/orders: safe for a channel ({tried})\n"
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


def test_a_store_that_lies_is_status_1_and_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_store, "open_store", lambda _: OverwritingStore())
    done = run("check-store", "s3://bucket/orders", "--races", 1)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("unsafe: it told 8 of 8 writers that they had created the same object")
    assert lines[-1].startswith("memory://bucket/orders: not safe for a channel (")
    said = json.loads(run("check-store", "--json", "s3://bucket/orders").stdout)
    assert set(said) == {"root", "races", "threads", "winners", "faults", "sound"}
    assert not said["sound"] and said["winners"] == 8 and said["races"] == 200


def test_a_store_that_cannot_be_asked_is_status_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("check-store", "s3a://bucket/orders")
    assert done.exit_code == 2 and "write s3://" in done.stderr
    (tmp_path / "file").touch()
    done = run("check-store", f"object+file://{tmp_path}/file/orders")
    assert done.exit_code == 2 and done.stderr.startswith(
        f"OptionError: no channel or backup can be at {tmp_path}/file/orders: "
    )
    said = json.loads(run("check-store", "--json", "s3a://bucket/orders").stdout)
    assert said["path"] == "s3a://bucket/orders" and said["error"] == "OptionError"


def test_a_channel_in_a_store_is_verified_and_repaired_by_its_address(tmp_path: Path) -> None:
    url = f"object+file://{tmp_path}/orders"
    with Channel(url, commit_interval=0) as channel:
        for body in (b"first", b"second", b"third"):
            put(channel, body)
    done = run("verify", url)
    assert done.exit_code == 0 and done.stdout.startswith(f"{url}: healthy (")
    (tmp_path / "orders" / slot_key(2)).write_bytes(b"nonsense")
    done = run("verify", url)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"damage: {slot_key(2)}, offset 0, 8 bytes: the file's header is damaged; events 2")
    assert "repair would lose 1 event, 2\n" in done.stdout
    said = json.loads(run("verify", "--json", url).stdout)
    assert (said["path"], said["findings"][0]["path"], said["loss"]["lost"]) == (url, slot_key(2), [[2, 2]])
    done = run("repair", url, "--yes")
    assert done.exit_code == 0 and f"{url}: repaired; what was damaged is in {url}/quarantine/" in done.stdout
    assert run("verify", url).exit_code == 0


@pytest.mark.parametrize("verb", ["verify", "repair"])
def test_an_address_without_a_channel_is_shown_as_it_was_given(verb: str, tmp_path: Path) -> None:
    url = f"object+file://{tmp_path}/nothing"
    done = run(verb, url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"NotAChannelError: {url} is not a channel")
    said = json.loads(run(verb, "--json", "s3a://bucket/orders").stdout)
    assert (said["path"], said["error"]) == ("s3a://bucket/orders", "OptionError")


def test_a_channel_is_named_as_it_was_given_and_its_files_below_that(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    monkeypatch.chdir(path)
    found = run("verify", "../channel").stdout.splitlines()
    assert found[0].startswith("damage: ../channel/data/log-000001, offset ")
    assert found[-1].startswith("../channel: damaged (")
    assert json.loads(run("verify", "../channel", "--json").stdout)["path"] == "../channel"
    done = run("repair", ".", "--yes").stdout.splitlines()
    assert done[-2].startswith(".: was damaged (")
    assert done[-1].startswith(".: repaired; what was damaged is in quarantine/")
    said = json.loads(run("verify", "../none", "--json").stdout)
    assert said["path"] == "../none"


def test_a_repair_that_gives_up_events_needs_a_yes(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    done = run("repair", path)
    assert done.exit_code == 2 and not (path / "quarantine").exists()
    assert f"A repair of {path} gives up 2 events, 3 to 4, which can't be read. Repair it?" in done.stderr


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("in_store", [False, True])
def test_a_repair_that_gives_up_delayed_events_says_so_and_needs_a_yes(
    tmp_path: Path, is_gone: bool, in_store: bool
) -> None:
    """It would "not lose any event", and gave them up unasked: they have no IDs."""
    path = f"object+file://{tmp_path}/channel" if in_store else tmp_path / "channel"
    with Channel(path) as channel, channel.put_transaction() as tx:
        for body in (b"a", b"b"):
            tx.put(Event(body), deliver_after="1h")
    (file,) = (
        f for f in (tmp_path / "channel").rglob("*") if f.is_file() and "delayed" in str(f.relative_to(tmp_path))
    )
    if is_gone:
        file.unlink()
    else:
        os.truncate(file, file.stat().st_size // 2)
    done = run("verify", path)
    assert done.exit_code == 1 and "repair would lose 2 delayed events\n" in done.stdout
    assert json.loads(run("verify", path, "--json").stdout)["loss"]["delayed"] == 2
    before = snapshot(tmp_path)
    refused = run("repair", path)
    assert refused.exit_code == 2 and "gives up 2 delayed events, which can't be read. Repair it?" in refused.stderr
    assert snapshot(tmp_path) == before
    done = run("repair", path, "--yes")
    assert done.exit_code == 0 and "repair did lose 2 delayed events\n" in done.stdout
    assert run("verify", path).exit_code == 0


def with_mount_point(tmp_path: Path) -> tuple[Path, Path]:
    """Return a channel and its directory for copies of checkpoints, whose disk is not mounted."""
    path, backup = tmp_path / "channel", tmp_path / "backup"
    with Channel(path, backup_checkpoint_dir=str(backup), minimum_required_space=0) as channel:
        put(channel, b"a")
        put(channel, b"b")
    backup.rename(tmp_path / "disk")
    backup.mkdir()
    return path, backup


@pytest.mark.parametrize("damaged", [False, True])
def test_a_yes_to_a_loss_claims_no_directory_for_copies_of_checkpoints(tmp_path: Path, damaged: bool) -> None:
    """The mount point became the channel's, and its own disk was refused when it was back."""
    path, backup = with_mount_point(tmp_path)
    if damaged:
        flip(log_file(path), offsets(path, FrameType.PUT)[1] + 60)
    owners = {file: file.read_bytes() for file in path.rglob("owner.json")}
    done = run("repair", path, "--yes")
    assert done.exit_code == 0, done.output
    assert (path / "quarantine").exists() is damaged
    assert f"'spillable repair {path} --claim {backup}' gives the channel the directory as it is" in done.stdout
    assert owners and {file: file.read_bytes() for file in owners} == owners and not [*backup.iterdir()]
    backup.rmdir()
    (tmp_path / "disk").rename(backup)
    assert run("verify", path).exit_code == 0


@pytest.mark.parametrize("damaged", [False, True])
def test_a_claim_takes_a_directory_for_copies_of_checkpoints_and_accepts_no_loss(tmp_path: Path, damaged: bool) -> None:
    path, backup = with_mount_point(tmp_path)
    if damaged:
        flip(log_file(path), offsets(path, FrameType.PUT)[1] + 60)
        refused = run("repair", path, "--claim", backup)
        assert refused.exit_code == 2 and "gives up 1 event, 2, which can't be read" in refused.stderr
        assert not [*backup.iterdir()]
    done = run("repair", path, "--claim", backup, *(["--yes"] if damaged else []))
    assert done.exit_code == 0, done.output
    assert (backup / "owner.json").exists()
    assert run("verify", path).exit_code == 0


def test_a_claim_of_a_directory_that_has_an_owner_changes_nothing(path: Path) -> None:
    backup = path.parent / "backup"
    with Channel(path, backup_checkpoint_dir=str(backup)) as channel:
        put(channel, b"a")
    before = snapshot(path.parent)
    assert run("repair", path, "--claim", backup).exit_code == 0
    assert snapshot(path.parent) == before


@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_a_data_directory_whose_disk_is_not_mounted_is_not_repaired_though_its_loss_is_accepted(
    tmp_path: Path, yes: list[str]
) -> None:
    path = spread(tmp_path)
    unmount(tmp_path / "d0")
    before = snapshot(tmp_path)
    done = run("repair", path, *yes)
    assert done.exit_code == 2 and "gives up" not in done.stderr
    assert f"{tmp_path}/d0, a directory of the channel {path}, has no owner.json. Its disk may not be" in done.stderr
    assert f"'spillable repair {path} --claim {tmp_path}/d0' gives the channel the directory" in done.stderr
    assert run("verify", path).exit_code == 1
    assert snapshot(tmp_path) == before


def test_a_claim_of_a_data_directory_names_the_events_that_are_lost_with_it_and_asks(tmp_path: Path) -> None:
    path = spread(tmp_path)
    unmount(tmp_path / "d0")
    refused = run("repair", path, "--claim", tmp_path / "d0")
    assert refused.exit_code == 2 and "gives up 1 event, 2, which can't be read" in refused.stderr
    done = run("repair", path, "--claim", tmp_path / "d0", "--yes")
    assert done.exit_code == 0 and "repair did lose 1 event, 2" in done.stdout
    assert run("verify", path).exit_code == 0


def test_a_claim_of_another_directory_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    path = spread(tmp_path)
    unmount(tmp_path / "d0")
    refused = run("repair", path, "--claim", tmp_path / "d5")
    assert refused.exit_code == 2 and "can't be claimed: it is not a directory of the channel" in refused.stderr
    assert "gives up" not in refused.stderr


def test_a_mount_point_that_was_claimed_once_needs_more_than_a_yes(tmp_path: Path) -> None:
    path = spread(tmp_path)
    away = unmount(tmp_path / "d0")
    assert run("repair", path, "--claim", tmp_path / "d0", "--yes").exit_code == 0
    (tmp_path / "d0").rename(tmp_path / "mount point")
    away.rename(tmp_path / "d0")
    before = snapshot(tmp_path)
    for yes in ([], ["--yes"]):
        refused = run("repair", path, *yes)
        assert refused.exit_code == 2 and "d0, a directory of the channel" in refused.stderr
        assert "is of an older or another state of it. The newer one may be on a disk that is not" in refused.stderr
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", ["verify", "repair", "check-store"])
def test_a_package_that_is_missing_is_a_line_and_status_2(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    done = run(verb, "s3://bucket/orders")
    assert done.exit_code == 2
    assert done.stderr == "ImportError: a channel in a cloud needs obstore: pip install 'spillable-stream[object]'\n"


def test_a_path_without_an_address_is_not_tested_as_a_store(tmp_path: Path) -> None:
    done = run("check-store", tmp_path)
    assert done.exit_code == 2 and f"{tmp_path} is not the address of a store" in done.stderr
