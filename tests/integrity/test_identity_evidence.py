"""What a channel is, even where its identity file is damaged."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream.errors import CorruptionError, NotAChannelError
from spillable_stream.integrity.findings import Findings, Severity
from spillable_stream.integrity.identity_evidence import check_owners, find_identity
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import contents, contents_of_copy, damage_of, fill, repaired, spread
from tests.support.damage import flip


@pytest.mark.parametrize("damage", ["not JSON", "another channel", "another directory"])
def test_a_damaged_identity_is_found_out_from_the_data_files(path: Path, damage: str) -> None:
    fill(path)
    uuid = read_identity(FileSystem(), path).channel
    text = (path / "channel.json").read_text()
    changed = {
        "not JSON": text.replace('"data"', 'data"'),
        "another channel": text.replace(uuid, "0" + uuid[1:] if uuid[0] != "0" else "1" + uuid[1:]),
        "another directory": text.replace('"data"', '"dbta"'),
    }
    (path / "channel.json").write_text(changed[damage])
    report = verify(path)
    assert (damage_of(report).path, report.channel) == (path / "channel.json", uuid)
    assert report.loss.lost == ()


def test_the_identity_is_written_anew(path: Path) -> None:
    fill(path)
    before, uuid = contents_of_copy(path), read_identity(FileSystem(), path).channel
    (path / "channel.json").write_bytes(b"\0" * 100)
    repaired(path)
    assert contents(path) == before
    assert read_identity(FileSystem(), path).channel == uuid


FS = FileSystem()


def test_a_healthy_channel_is_what_its_identity_says(path: Path) -> None:
    fill(path)
    findings = Findings()
    assert find_identity(FS, path, findings) == (read_identity(FS, path), False)
    assert findings.all() == ()


def test_a_lost_identity_is_told_by_the_owner_file_with_directories_elsewhere(tmp_path: Path) -> None:
    path, findings = spread(tmp_path), Findings()
    before = read_identity(FS, path)
    (path / "channel.json").unlink()
    assert find_identity(FS, path, findings) == (before, True)
    assert [(f.path, f.text) for f in findings.all()] == [
        (path / "channel.json", "the channel's identity is missing; its other files say it too")
    ]


def test_a_lost_identity_is_told_by_the_data_files_where_they_usually_are(path: Path) -> None:
    fill(path)
    before = read_identity(FS, path)
    (path / "channel.json").write_text("{")
    (path / OWNER_FILE).unlink()
    layout, damaged = find_identity(FS, path, Findings())
    assert (layout.channel, layout.data_dirs, damaged) == (before.channel, before.data_dirs, True)


def test_the_newest_whole_header_says_what_the_channel_is(path: Path) -> None:
    fill(path)
    before = read_identity(FS, path)
    newest = before.log_files(FS)[-1]
    for file_id in (newest, newest - 1):
        flip(before.log_file(file_id), 60)
    (path / "channel.json").write_text("{")
    (path / OWNER_FILE).unlink()
    assert find_identity(FS, path, Findings())[0].channel == before.channel


def test_where_nothing_says_what_the_channel_is_it_is_refused(path: Path) -> None:
    fill(path)
    (path / OWNER_FILE).unlink()
    shutil.rmtree(path / "data")
    (path / "channel.json").write_text("{")
    with pytest.raises(CorruptionError, match="the channel's identity can't be read"):
        find_identity(FS, path, Findings())
    (path / "channel.json").unlink()
    with pytest.raises(NotAChannelError):
        find_identity(FS, path, Findings())


def test_directories_that_are_the_channels_are_not_findings(tmp_path: Path) -> None:
    layout, findings = read_identity(FS, spread(tmp_path)), Findings()
    assert not check_owners(FS, layout, findings)
    assert findings.all() == ()


@pytest.mark.parametrize("harm", ["not mounted", "damaged", "exchanged"])
def test_a_directory_that_is_not_proven_is_damage(tmp_path: Path, harm: str) -> None:
    path, findings = spread(tmp_path), Findings()
    owner = tmp_path / "d1" / OWNER_FILE
    if harm == "not mounted":
        owner.unlink()
    elif harm == "damaged":
        owner.write_text("{")
    else:
        shutil.copy(tmp_path / "d0" / OWNER_FILE, owner)
    assert check_owners(FS, read_identity(FS, path), findings)
    (found,) = findings.all()
    assert (found.severity, found.path) == (Severity.DAMAGE, owner)
    why = {
        "not mounted": "it has no owner.json",
        "damaged": "can't be read",
        "exchanged": "it is data-0 of the channel",
    }
    assert why[harm] in found.text


def test_a_checkpoint_directory_that_the_next_open_creates_is_not_a_finding(path: Path) -> None:
    fill(path)
    shutil.rmtree(path / "checkpoint")
    assert not check_owners(FS, read_identity(FS, path), Findings())


def test_a_channel_of_the_first_releases_has_no_owner_files(path: Path) -> None:
    fill(path)
    (path / "data" / OWNER_FILE).unlink()
    layout = read_identity(FS, path)
    assert check_owners(FS, layout, Findings())
    assert not check_owners(FS, replace(layout, owned=False), Findings())
