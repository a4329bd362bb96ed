from __future__ import annotations

import pytest

from spillable_stream import DeadLetter, Drop, Retry, WorkerFailedError
from spillable_stream.workers.config import WorkerConfig
from spillable_stream.workers.judge import Judge
from spillable_stream.workers.work import Deferred, Fate, Work


def judge(*, has_dead_letters: bool = True) -> Judge:
    config = WorkerConfig(batch_size=None, max_attempts=3, backoff=2.0, threads=1, timeout=5)
    return Judge(print, "/data/orders", config, has_dead_letters, lambda: 0.0)


@pytest.mark.parametrize(("error", "fate"), [(None, Fate.DONE), (Drop(), Fate.DROPPED), (DeadLetter(), Fate.DEAD)])
def test_a_return_and_most_verdicts_settle_events(error: Exception | None, fate: Fate) -> None:
    work = Work([(1, 9)], error=error)
    assert judge().judge(work) == [] and work.fate is fate
    assert not judge().is_failure(error)


def test_a_batch_that_fails_is_tried_again_in_halves_at_once() -> None:
    work = Work([(1, 3)], error=ValueError())
    assert judge().judge(work) == [Deferred(Work([(1, 1)]), 0.0), Deferred(Work([(2, 3)]), 0.0)]
    assert judge().is_failure(work.error)


def test_one_event_that_fails_waits_twice_as_long_each_time_and_is_given_up() -> None:
    work = Work([(7, 7)], error=ValueError())
    assert [judge().judge(work)[0].seconds for _ in range(2)] == [2.0, 4.0]
    assert judge().judge(work) == [] and work.fate is Fate.DEAD and work.attempts == 3


def test_a_retry_is_not_an_attempt_and_waits_as_it_says() -> None:
    work = Work([(1, 9)], error=Retry(after=60))
    assert judge().judge(work) == [Deferred(work, 60)]
    work.error = Retry()
    assert [judge().judge(work)[0].seconds for _ in range(2)] == [4.0, 8.0]
    assert work.attempts == 0 and not judge().is_failure(work.error)


def test_without_dead_letters_giving_up_is_an_error_that_names_the_event_and_the_cause() -> None:
    cause = ValueError("no such customer")
    for error, times in ((DeadLetter("x"), "once"), (cause, "3 times")):
        work = Work([(7, 7)], attempts=0 if times == "once" else 2, error=error)
        with pytest.raises(WorkerFailedError, match=f"print failed {times} for the event 7 of /data/orders") as e:
            judge(has_dead_letters=False).judge(work)
        assert e.value.__cause__ is error


def test_a_channel_that_refuses_is_asked_again_ever_later() -> None:
    work = Work([(1, 1)], fate=Fate.DEAD)
    assert [judge().refused(work).seconds for _ in range(3)] == [1.0, 2.0, 4.0] and work.is_refused


def test_late_calls_are_said_with_the_event_and_what_to_do() -> None:
    assert str(judge().late(Work([(1, 9)]))) == (
        "print did not return within 5 s for the events 1 to 9 of /data/orders; its thread "
        "can't be stopped, and keeps running"
    )
    assert "10 calls of print have not returned within 5 s" in str(judge().too_many_late(10))
