from __future__ import annotations

from spillable_stream.flow.sinks.request_limit import RequestLimit


def after(limit: RequestLimit, *rounds: tuple[int, int]) -> list[int]:
    found = []
    for sent, refused in rounds:
        limit.finished(sent, refused)
        found.append(limit.now)
    return found


def test_it_grows_by_one_up_to_the_most_and_only_where_all_were_used() -> None:
    assert after(RequestLimit(4), (1, 0), (2, 0), (2, 0), (3, 0), (4, 0), (4, 0)) == [2, 3, 3, 4, 4, 4]


def test_it_is_halved_by_what_the_server_refuses_and_never_none() -> None:
    limit = RequestLimit(100)
    limit.now = 9
    assert after(limit, (9, 1), (4, 4), (2, 1), (1, 1), (1, 0)) == [4, 2, 1, 1, 2]
