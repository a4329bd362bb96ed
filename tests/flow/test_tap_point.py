from __future__ import annotations

from spillable_stream.flow import tap_point
from spillable_stream.flow.tap_point import TapPoint
from tests.support.flow_batches import batch_of
from tests.support.forks import in_child


def test_batches_go_to_those_who_listen_now() -> None:
    point = TapPoint()
    point.passed(batch_of(b"before"))
    with point.listening() as one, point.listening() as other:
        assert point
        batch = batch_of(b"x")
        point.passed(batch)
        assert one.next(0)[0] is batch  # it is not copied
        assert other.next(0) == (batch, 0)
        assert one.next(0) == (None, 0)
    assert not point


def test_what_a_listener_cannot_keep_up_with_is_counted_and_not_held() -> None:
    point = TapPoint()
    with point.listening() as listener:
        for _ in range(20):
            point.passed(batch_of(b"x", b"y"))
        found = [listener.next(0) for _ in range(17)]
    assert sum(batch is not None for batch, _ in found) == 16
    assert sum(skipped for _, skipped in found) == 4 * 2


def test_a_forked_child_listens_though_a_thread_of_the_parent_was_about_to() -> None:
    def listen() -> bool:
        with TapPoint().listening() as listener:
            return listener.next(0) == (None, 0)

    with tap_point._mutex:
        in_child(listen)
