"""What a producer begins with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel, Producer
from spillable_stream.errors import OptionError, ProducerBusyError, SendFailedError
from spillable_stream.producer.beginning import Beginning
from spillable_stream.producer.targets import Targets
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget


@pytest.fixture
def targets(path: Path) -> Iterator[Targets]:
    targets = Targets(path, None)
    yield targets
    targets.close()


def test_a_producer_without_a_name_has_another_one_each_time_and_begins_at_0(targets: Targets) -> None:
    one, other = (Beginning.of(targets, None, targets.config({})) for _ in range(2))
    assert one.producer_id != other.producer_id and one.destinations[0].next_sequence() == 1
    assert one.route.to(None) is one.destinations[0] and one.dead_letters is None


def test_a_producer_with_a_name_is_the_only_one_and_begins_after_its_last_number(path: Path, targets: Targets) -> None:
    with Producer(path, producer_id="me") as producer:
        producer.send(b"x").result(PATIENCE_SECONDS)
        with pytest.raises(ProducerBusyError):
            Beginning.of(targets, "me", targets.config({}))
    begun = Beginning.of(targets, "me", targets.config({}))
    assert begun.producer_id == "me" and begun.destinations[0].next_sequence() == 2


def test_a_name_knows_which_numbers_are_dead_letters(tmp_path: Path) -> None:
    class Down(FakeTarget):
        def commit(self, *_: object) -> tuple[int, int]:
            raise ValueError("never")

    dead = tmp_path / "dead"
    with Producer(Down(), producer_id="me", dead_letter=dead) as producer, pytest.raises(SendFailedError):
        producer.send_many([b"x"], sequence=3).result(PATIENCE_SECONDS)
    for name, last in (("me", 3), (None, 0)):
        targets = Targets(FakeTarget(), dead)
        begun = Beginning.of(targets, name, targets.config({}))
        assert begun.destinations[0]._last_dead == last
        targets.close()


def test_targets_of_one_name_have_no_dead_letters_of_a_producer_with_a_name(tmp_path: Path) -> None:
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        targets = Targets({"a": FakeTarget(), "b": FakeTarget()}, dead)
        assert Beginning.of(targets, None, targets.config({})).dead_letters is not None
        with pytest.raises(OptionError, match="could not tell their dead letters apart"):
            Beginning.of(targets, "me", targets.config({}))
