from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spillable_stream.flow.sources.file_watch import FileWatch
from tests.support.waiting import wait_until


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


def begin(watch: FileWatch, stopping: threading.Event) -> threading.Thread:
    """Begin a wait of an hour in a thread."""
    waiting = threading.Thread(target=watch.wait, args=(3600, stopping), daemon=True)
    waiting.start()
    return waiting


def test_a_change_ends_a_wait_and_one_of_another_file_does_not(tmp_path: Path, stopping: threading.Event) -> None:
    seen: list[str] = []

    def is_wanted(path: str) -> bool:
        seen.append(Path(path).name)
        return path.endswith(".log")

    watch = FileWatch([tmp_path], is_wanted)
    waiting = begin(watch, stopping)

    def change(name: str) -> bool:
        with (tmp_path / name).open("a") as f:
            f.write("line\n")
        return name in seen or not waiting.is_alive()

    wait_until(lambda: change("other"))
    assert waiting.is_alive()
    wait_until(lambda: change("app.log"))
    waiting.join(30)
    assert not waiting.is_alive()
    with (tmp_path / "app.log").open("a") as f:
        f.write("between two waits\n")
    again = begin(watch, stopping)
    again.join(30)
    assert not again.is_alive()


def test_the_end_ends_a_wait(tmp_path: Path, stopping: threading.Event) -> None:
    watch = FileWatch([tmp_path], lambda _: True)
    waiting = begin(watch, stopping)
    stopping.set()
    waiting.join(30)
    assert not waiting.is_alive()
    watch.close()


class Counted(threading.Event):
    """Says how long it was waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[int] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(round(timeout or 0))
        return True


def test_a_directory_that_is_created_later_is_watched_from_then_on(tmp_path: Path, stopping: threading.Event) -> None:
    watch, counted = FileWatch([tmp_path / "later"], lambda _: True), Counted()
    watch.wait(7, counted)
    assert counted.waits == [7]
    (tmp_path / "later").mkdir()
    waiting = begin(watch, stopping)
    wait_until(lambda: (tmp_path / "later" / "x").write_text("1") and not waiting.is_alive())


def test_where_changes_cannot_be_watched_a_wait_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def watch(*_: object, **__: object) -> object:
        raise OSError("too many watches")
        yield

    monkeypatch.setattr("watchfiles.watch", watch)
    file_watch, counted = FileWatch([tmp_path], lambda _: True), Counted()
    with caplog.at_level("INFO"):
        file_watch.wait(7, counted)
        file_watch.wait(8, counted)
    assert counted.waits == [7, 8]
    assert caplog.text.count("too many watches") == 1
