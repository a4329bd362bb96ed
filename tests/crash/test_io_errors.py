"""A system call fails, at every call of a program: what was acknowledged is there, what was refused is not."""

from __future__ import annotations

import logging
import random
import re
import shutil
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, SpillableError
from tests.lab.faults import CALLS, ERRORS, SHORT, SYNCS, WRITES, Fault, faulty
from tests.lab.keeping import upkeep_by_hand
from tests.lab.ledger import LedgerLines
from tests.lab.size import sized
from tests.lab.subject import DELAYING, KEEPING, Subject, subject
from tests.lab.workload import OPTIONS, put
from tests.support.damage import remove_memory_under

FAULTS = [(error, for_good) for error in ERRORS for for_good in (False, True)]


class _GivenUp(logging.Handler):
    """Collects which kept events left because the disk refused them, and a put needed their place in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "kept no longer" in str(record.msg) and isinstance(record.args, tuple):
            ids = re.findall(r"\d+", str(record.args[1]))
            self.ranges.append((int(ids[0]), int(ids[-1])))

    def explains(self, wrong: str) -> bool:
        """Tell whether a finding is about such events alone."""
        missed = re.search(r"\[([\d, ]+)\] must be there, for they are kept", wrong)
        return missed is not None and all(
            any(first <= int(event) <= last for first, last in self.ranges) for event in missed[1].split(",")
        )


@contextmanager
def _watched() -> Iterator[_GivenUp]:
    given_up, log = _GivenUp(), logging.getLogger("spillable_stream.engine.local.moving")
    log.addHandler(given_up)
    try:
        yield given_up
    finally:
        log.removeHandler(given_up)


def wrongs_with(directory: Path, configuration: str, fault: Fault) -> list[str]:
    """Return what is wrong after a program with a fault."""
    path, ledger = directory / "channel", LedgerLines()
    tested = subject(configuration)
    program = tested.program(path, ledger, rounds=1, seed=1)
    try:
        with upkeep_by_hand(), warnings.catch_warnings(), _watched() as given_up:
            warnings.simplefilter("ignore")
            with faulty(fault):
                errors = program.run_whatever_fails()
            if fault.error == SHORT and errors:
                return [f"a short call is no error: {errors[0]!r}"]
            wrong = [*_wrong_words(errors), *_wrong_after(tested, path, ledger)]
            return [w for w in wrong if not given_up.explains(w)]
    except Exception:  # whatever it is, it should have been one of the package's own errors
        return [traceback.format_exc(limit=-8)]
    finally:
        program.give_up()
        remove_memory_under(directory)
        shutil.rmtree(path, ignore_errors=True)


def _wrong_words(errors: list[SpillableError]) -> list[str]:
    """Return the errors that do not say to what it happened."""
    return [f"{e!r} names no file" for e in errors if "/" not in str(e)]


def _wrong_after(tested: Subject[Any], path: Path, ledger: LedgerLines) -> list[str]:
    """Return what is wrong with the channel once the fault is gone."""
    with Channel(path, **OPTIONS) as channel:
        wrong = tested.verdict([ledger.lines]).wrong(tested.contents(channel))
        put(channel, ledger, "afterwards", 1, 2, 10)
        channel.checkpoint()
    with Channel(path, **OPTIONS) as channel:
        return wrong + tested.verdict([ledger.lines]).wrong(tested.contents(channel))


def sweep(directory: Path, configuration: str, numbers: range) -> list[str]:
    """Return what is wrong with a program of which calls fail once: in CI in one way each, else in every way."""
    rng, found = random.Random(1), []
    for number in numbers:
        for error, for_good in FAULTS if sized(0, 1) else [rng.choice(FAULTS)]:
            fault = Fault(number, error, for_good)
            found += [f"{fault}: {w}" for w in wrongs_with(directory, configuration, fault)]
            if len(found) > 3:
                return found
    return found


def calls(directory: Path, configuration: str, among: tuple[str, ...] = CALLS) -> int:
    """Return how many calls of some names a program does."""
    fault = Fault(among=among)
    assert wrongs_with(directory, configuration, fault) == []
    return fault.calls


@pytest.mark.crash
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(
    "configuration", ["disk", "tiny memory", f"{KEEPING}disk", f"{KEEPING}tiny memory", f"{DELAYING}disk"]
)
def test_a_failed_call_is_reported_and_loses_nothing(shared_memory: Path, configuration: str, part: int) -> None:
    count = calls(shared_memory, configuration)
    assert count > 300
    every = sized(ci=96, full=4)
    assert sweep(shared_memory, configuration, range(1 + part * every // 4, count + 1, every)) == []


@pytest.mark.parametrize("kind", range(len(FAULTS)), ids=lambda kind: "-".join(map(str, FAULTS[kind])))
def test_a_failed_write_or_sync_is_reported_and_loses_nothing(shared_memory: Path, kind: int) -> None:
    """Each kind of fault strikes others of them."""
    for among in (WRITES, SYNCS):
        count = calls(shared_memory, "disk", among)
        for place in (kind, kind + len(FAULTS)):
            fault = Fault(1 + place * count // (2 * len(FAULTS)), *FAULTS[kind], among)
            assert wrongs_with(shared_memory, "disk", fault) == []
            assert fault.name in among
