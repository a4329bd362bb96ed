"""`verify` of a channel in a store says what is wrong where, changes nothing, and works beside live handles."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.integrity.findings import Report
from spillable_stream.integrity.object_verify import examine_objects
from spillable_stream.objects.location import Location
from spillable_stream.objects.parallel import MOST_AT_ONCE
from spillable_stream.objects.slots import LOG, slot_key
from spillable_stream.objects.store import StoreError
from spillable_stream.progress import Progress
from tests.support.events import numbered, put, take
from tests.support.faulty_store import FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, collect_now, kill, stores_in_memory
from tests.support.object_damage import DAMAGES, damage_object, fill_store, merge_now, open_here, wrong

CHECKPOINT = "the checkpoint is damaged; it costs nothing but time: the log says the same"


def newest(store: MemoryStore, prefix: str) -> str:
    return max(key for key in store.objects if key.startswith(prefix))


# ── healthy channels ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_healthy_channel_has_no_findings_and_not_a_byte_of_it_changes(store: MemoryStore, checkpoints: bool) -> None:
    fill_store(checkpoints=checkpoints)
    before = dict(store.objects)
    report = ss.verify(URL)
    assert (report.findings, report.healthy, report.loss.lost, report.unrepairable) == ((), True, (), "")
    assert (report.path, report.quarantine, report.as_dict()["path"]) == (Location.parse(URL), None, URL)
    assert report.files > 10 and report.frames > 20 and report.read_bytes > 1000
    assert store.objects == before


def test_nothing_but_reads_and_lists_is_asked_of_the_store() -> None:
    inner = MemoryStore(URL)
    with stores_in_memory() as stores:
        stores[URL] = inner
        fill_store()
    damage_object(inner, slot_key(3), DAMAGES["one byte of the rest"])
    watched = FaultyStore(inner)
    assert examine_objects(watched).log_damaged
    assert set(watched.counts) <= {"get", "get_range", "list"}


def test_verify_lists_once_and_reads_each_slot_after_the_oldest_checkpoint_once(store: MemoryStore) -> None:
    fill_store(checkpoints=False)
    last = max(int(key.removeprefix(LOG)) for key in store.objects if key.startswith(LOG))
    watched = FaultyStore(store)
    assert not examine_objects(watched).log_damaged
    read = Counter(request.key for request in watched.requests if request.kind != "list")
    assert watched.counts["list"] == 1
    assert [read[slot_key(number)] for number in range(1, last)] == [1] * (last - 1)
    beyond = sum(count for key, count in read.items() if key > slot_key(last) and key.startswith(LOG))
    assert beyond <= MOST_AT_ONCE, "what may have come since is asked for at the same time"


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_to_the_hint_is_not_damage(store: MemoryStore, kind: str) -> None:
    fill_store()
    damage_object(store, "hint", DAMAGES[kind])
    report = ss.verify(URL)
    assert report.healthy
    assert [f.path for f in report.findings] == ([] if kind == "missing" else [Path("hint")])


def test_an_old_hint_is_not_damage(store: MemoryStore) -> None:
    fill_store()
    store.objects["hint"] = b'{"tail": 1, "checkpoint": 1}'
    assert ss.verify(URL).findings == ()


def test_what_nobody_needs_is_noted_at_most(store: MemoryStore) -> None:
    fill_store()
    orphan = "segments/00000000000000000003-local.0." + "a" * 32
    store.objects |= {
        orphan: b"staged",
        "notes.txt": b"a stray",
        "log/7": b"a stray",
        "queries/fast": b"a query",
        "quarantine/events-1-2/bytes": b"\0",
    }
    report = ss.verify(URL)
    assert report.healthy
    assert {str(f.path): f.text.partition(":")[0] for f in report.findings} == {
        orphan: "no event in the channel is in this segment",
        ".": "2 objects are not the channel's and are left alone",
    }


def test_what_was_collected_is_not_missed_and_a_late_writer_s_slot_in_its_place_is_not_seen(store: MemoryStore) -> None:
    with open_here(gc_delay=0) as channel:
        for i in range(12):
            put(channel, *numbered(i, 2))
        take(channel, 20)
        collect_now(channel)
        collect_now(channel)
    assert slot_key(3) not in store.objects
    assert ss.verify(URL).findings == ()
    store.objects[slot_key(3)] = b"of a writer that slept"
    assert ss.verify(URL).healthy


def test_a_slot_that_was_appended_behind_another_one_is_damage(store: MemoryStore) -> None:
    fill_store()
    last = newest(store, "log/")
    with open_here(create=False) as channel:
        stale = channel.engine().log._appending.attempt(channel.engine().log.tail, [])  # type: ignore[attr-defined]
        put(channel, b"meanwhile")
    following = int(last.removeprefix("log/")) + 2
    stale.for_request()
    header = stale._header(stale.token)
    store.objects[slot_key(following)] = b"".join(
        type(header)(header.channel, following, header.previous, stale.token, "a test").encode()
    )
    report = ss.verify(URL)
    assert not report.healthy
    (found,) = report.findings
    assert str(found.path) == slot_key(following) and found.text.startswith("the slot was appended after one")


# ── damage ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_to_the_identity_costs_no_event(store: MemoryStore, kind: str) -> None:
    fill_store()
    damage_object(store, "channel.json", DAMAGES[kind])
    report = ss.verify(URL)
    (found,) = wrong(report)
    assert (found.path, found.severity, report.loss.lost) == (Path("channel.json"), "damage", ())
    assert found.text.endswith("; its other objects say it too")


@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "missing"])
def test_a_damaged_checkpoint_costs_no_event(store: MemoryStore, kind: str) -> None:
    fill_store()
    damage_object(store, newest(store, "checkpoints/"), DAMAGES[kind])
    report = ss.verify(URL)
    assert [(f.severity, f.text) for f in wrong(report)] == [("warning", CHECKPOINT)]
    assert (report.loss.lost, report.damaged, report.healthy) == ((), False, False)


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_slot_that_is_needed_is_named_with_its_events(store: MemoryStore, kind: str) -> None:
    fill_store()
    damage_object(store, slot_key(3), DAMAGES[kind])
    report = ss.verify(URL)
    lost = () if kind == "one byte of the header" else ((11, 15),)
    assert (report.loss.lost, report.loss.doubtful, report.loss.repeated) == (lost, (), {})
    assert {str(f.path) for f in wrong(report)} == {slot_key(3)} and report.damaged


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_slot_whose_events_every_group_took_is_damaged_and_loses_nothing(store: MemoryStore, kind: str) -> None:
    with open_here() as channel:
        put(channel, b"0", b"1")
        put(channel, b"2")
        take(channel, 2)
        channel.checkpoint()
    damage_object(store, slot_key(1), DAMAGES[kind])
    report = ss.verify(URL)
    assert {str(f.path) for f in wrong(report)} == {slot_key(1)} and report.damaged
    assert (report.loss.lost, report.loss.kept, report.loss.doubtful) == ((), (), ())


@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "one byte of the header"])
def test_kept_events_that_no_group_needs_are_told_apart(store: MemoryStore, kind: str) -> None:
    with open_here(retention_ms=10**9) as channel:
        put(channel, b"0", b"1")
        slot = newest(store, "log/")
        put(channel, b"2")
        take(channel, 2)
        channel.checkpoint()
    damage_object(store, slot, DAMAGES[kind])
    report = ss.verify(URL)
    assert (report.loss.lost, report.loss.kept) == ((), ((1, 2),))


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_segment_that_is_needed_is_named_with_its_events(store: MemoryStore, kind: str) -> None:
    fill_store()
    key = newest(store, "segments/")
    damage_object(store, key, DAMAGES[kind])
    report = ss.verify(URL)
    (found,) = wrong(report)
    lost = () if kind == "one byte of the header" else ((21, 24),)
    assert (str(found.path), found.events, report.loss.lost) == (key, lost, lost)


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_merged_object_is_named_with_its_events(store: MemoryStore, kind: str) -> None:
    with open_here() as channel:
        for i in range(6):
            put(channel, *numbered(2 * i, 2))
        take(channel, 3)
        merge_now(channel)
    key = newest(store, "segments/")
    assert ss.verify(URL).healthy and "-merged." in key
    damage_object(store, key, DAMAGES[kind])
    report = ss.verify(URL)
    assert {str(f.path) for f in wrong(report)} == {key}
    assert report.loss.lost[-1][1] <= 12 if report.loss.lost else kind == "one byte of the header"


@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "missing"])
def test_damage_to_the_newest_slot_says_that_ids_may_have_been_used(store: MemoryStore, kind: str) -> None:
    channel = open_here()
    put(channel, b"0", b"1")
    take(channel, 1)
    put(channel, b"2" * 20, b"3" * 20)
    kill(channel)
    damage_object(store, newest(store, "log/"), DAMAGES[kind])
    report = ss.verify(URL)
    assert {str(f.path) for f in wrong(report)} == {newest(store, "log/")}
    if kind == "one byte of the header":
        assert (report.loss.lost, report.loss.doubtful) == ((), ())
    elif kind == "one byte of the rest":
        assert (report.loss.lost, report.loss.doubtful) == (((3, 4),), ())
    else:
        assert report.loss.doubtful[0][0] == 3 and report.loss.repeated == {"default": ((2, 2),)}


def test_slots_of_another_channel_and_of_another_number_are_damage(store: MemoryStore) -> None:
    fill_store()
    whole = dict(store.objects)
    store.objects[slot_key(3)] = whole[slot_key(4)]
    assert ss.verify(URL).loss.lost == ((11, 15),)
    store.objects.clear()
    fill_store()
    store.objects[slot_key(4)] = whole[slot_key(4)]
    assert ss.verify(URL).loss.lost == ((16, 20),)


def test_a_log_that_was_cut_off_before_its_newest_checkpoint_is_damaged_though_an_open_by_an_older_hint_does_not_see_it(
    store: MemoryStore,
) -> None:
    with open_here() as channel:
        put(channel, b"1")
        channel.checkpoint()
        older_hint = store.objects["hint"]
        put(channel, b"2", b"3")
        channel.checkpoint()
    key = newest(store, LOG)
    del store.objects[key]
    store.objects["hint"] = older_hint
    found = wrong(ss.verify(URL))[0]
    assert (str(found.path), found.severity) == (key, "damage")
    with open_here(create=False) as channel:  # a listing for each open would be the price (decision 0060)
        assert channel.stats().last_id == 1
    del store.objects["hint"]
    with pytest.raises(ss.DataLossError, match="which is not in the log"):
        open_here(create=False)


@pytest.mark.parametrize("kind", DAMAGES)
def test_slot_0_can_be_spared_where_a_checkpoint_is(store: MemoryStore, kind: str) -> None:
    fill_store()
    damage_object(store, slot_key(0), DAMAGES[kind])
    report = ss.verify(URL)
    (found,) = wrong(report)
    assert str(found.path) == slot_key(0) and found.text.endswith(": a checkpoint says the same")
    assert report.loss.lost == ()


def test_the_slot_of_a_checkpoint_is_needed_even_if_nothing_follows_it(store: MemoryStore) -> None:
    with open_here() as channel:
        put(channel, b"0")
        channel.checkpoint()
    last = newest(store, "log/")
    del store.objects[last]
    report = ss.verify(URL)
    assert [str(f.path) for f in wrong(report)] == [last]
    assert report.damaged


def test_a_checkpoint_that_says_another_state_than_the_log_is_damage(store: MemoryStore) -> None:
    with stores_in_memory() as other_stores:
        fill_store(checkpoints=False)
        with open_here(create=False) as channel:
            log = channel.engine().log
            state = channel.engine().follow()
            state.groups["fast"].position -= 1
            log.checkpoints.write(log.tail, state)  # type: ignore[attr-defined]
        objects = other_stores[URL].objects
    store.objects |= objects
    (found,) = wrong(ss.verify(URL))
    assert found.text == "the checkpoint says another state than the log before it"
    assert str(found.path) == newest(store, "checkpoints/")


def test_events_on_the_way_are_read_again(store: MemoryStore) -> None:
    fill_store()
    hurt = [slot_key(3)] * 3

    class Noisy(MemoryStore):
        def get(self, key: str) -> bytes:
            data = super().get(key)
            if key in hurt:
                hurt.remove(key)
                return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
            return data

    noisy = Noisy(URL)
    noisy.objects = store.objects
    assert not examine_objects(noisy).log_damaged
    assert not hurt


# ── what nobody can tell ────────────────────────────────────────────────────────────────────────


def test_a_root_without_a_channel_is_none(store: MemoryStore) -> None:
    with pytest.raises(ss.NotAChannelError, match=r"s3://bucket/orders is not a channel: it has no channel\.json"):
        ss.verify(URL)


def test_a_channel_that_somebody_is_creating_is_none_yet(store: MemoryStore) -> None:
    open_here().close()
    del store.objects["channel.json"]
    with pytest.raises(ss.NotAChannelError):
        ss.verify(URL)


def test_a_store_that_fails_says_so() -> None:
    def refuse(request: Request) -> None:
        raise StoreError(f"no right to {request.kind}")

    with pytest.raises(StoreError, match="no right to list"):
        examine_objects(FaultyStore(MemoryStore(URL), refuse))  # type: ignore[arg-type]


def test_no_channel_is_at_an_address_that_can_have_none() -> None:
    with pytest.raises(ss.OptionError, match="write s3://"):
        ss.verify("s3a://bucket/orders")


# ── beside others ───────────────────────────────────────────────────────────────────────────────


def busy_steps(channel: ss.Channel) -> Iterator[Callable[[], object]]:
    """Yield what others do meanwhile, again and again."""
    for number in count():
        yield partial(put, channel, b"%d" % number, b"x" * 1500 if number % 3 == 0 else b"")
        yield partial(take, channel, 2)
        if number % 4 == 0:
            yield partial(merge_now, channel)
        if number % 5 == 0:
            yield partial(collect_now, channel)


@pytest.mark.parametrize("every", [1, 2, 3, 5, 8, 13])
def test_nothing_is_found_while_others_put_take_merge_and_collect_between_its_requests(every: int) -> None:
    """The requests come after something else has changed, but the last one of ten looks finds the store quiet."""
    with stores_in_memory() as stores:
        stores[URL] = MemoryStore(URL)
        with open_here(gc_delay=0, max_inline_bytes=1000) as channel:
            for i in range(10):
                put(channel, b"%d" % i, b"y" * 600 * (i % 4))
            take(channel, 5)
            steps = busy_steps(channel)
            left, looks = [60], [0]

            def meanwhile(request: Request) -> None:
                looks[0] += request.key == "channel.json"
                if request.number % every == 0 and left[0] and looks[0] < 10:
                    left[0] -= 1
                    next(steps)()

            inspection = examine_objects(FaultyStore(stores[URL], after=meanwhile))
            assert [f for f in inspection.findings.all() if f.severity != "note"] == []
            assert left[0] < 60 and inspection.frames


def test_an_object_that_is_deleted_between_two_requests_for_it_is_not_damage(store: MemoryStore) -> None:
    with open_here(gc_delay=0, max_inline_bytes=1000) as channel:
        put(channel, b"x" * 5000)
        segments = {key for key in store.objects if key.startswith("segments/")}
        assert segments

        def meanwhile(request: Request) -> None:
            if request.key in segments and request.key in store.objects:
                take(channel, 1)
                del store.objects[request.key]  # as a trim does then

        assert not examine_objects(FaultyStore(store, after=meanwhile)).findings.all()
        assert not segments & store.objects.keys()


def test_nothing_is_found_while_threads_put_take_merge_and_collect(store: MemoryStore) -> None:
    with open_here(gc_delay=0, max_inline_bytes=1000) as channel:
        put(channel, b"first")
        take(channel, 1)
        done, pause_seconds = threading.Event(), 0.01
        troubles: list[BaseException] = []

        def work() -> None:
            try:
                for step in busy_steps(channel):
                    step()
                    if done.wait(pause_seconds):
                        return
            except BaseException as e:
                troubles.append(e)

        worker = threading.Thread(target=work)
        worker.start()
        reports: list[Report] = []
        try:
            while len(reports) < 25:
                try:
                    reports.append(ss.verify(URL))
                except ss.ChannelBusyError:  # which says: try again when less is put and taken
                    pause_seconds *= 2
        finally:
            done.set()
            worker.join()
    assert not troubles
    assert all(report.healthy for report in reports), [wrong(report) for report in reports]


def test_a_channel_that_changes_faster_than_it_can_be_read_says_so(store: MemoryStore) -> None:
    with open_here(gc_delay=0) as channel:
        put(channel, b"0")

        def meanwhile(request: Request) -> None:
            if request.kind == "get" and request.key.startswith("log/"):
                put(channel, b"1")
                take(channel, 100)
                collect_now(channel)

        with pytest.raises(ss.ChannelBusyError, match="changes faster than it can be read"):
            examine_objects(FaultyStore(store, after=meanwhile))


# ── a directory ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_channel_in_a_directory_is_verified_and_repaired_by_its_address(tmp_path: Path, kind: str) -> None:
    url = f"object+file://{tmp_path}/orders"
    with ss.Channel(url, commit_interval=0) as channel:
        for i in range(4):
            put(channel, *numbered(3 * i, 3))
        channel.checkpoint()
    assert ss.verify(url).findings == ()
    file = tmp_path / "orders" / slot_key(2)
    data = DAMAGES[kind](file.read_bytes())
    file.unlink()
    if data is not None:
        file.write_bytes(data)
    report = ss.verify(url)
    lost = () if kind == "one byte of the header" else ((4, 6),)
    assert (report.loss.lost, report.damaged) == (lost, True)
    repaired = ss.repair(url)
    assert repaired.loss == report.loss and str(repaired.quarantine).startswith(f"{url}/quarantine/")
    assert ss.verify(url).healthy
    with ss.Channel(url, create=False) as channel:
        gone = range(4, 7) if lost else ()
        assert take(channel) == [body for i, body in enumerate(numbered(0, 12), 1) if i not in gone]


def test_it_tells_how_far_it_is_though_it_does_not_know_the_whole(tmp_path: Path) -> None:
    address = f"object+file://{tmp_path}/orders"
    told: list[Progress] = []
    with ss.Channel(address, progress=told.append) as channel:
        put(channel, *numbered(0, 20))
    assert {(p.what, p.unit) for p in told} == {("open", "slots")}
    told.clear()
    report = ss.verify(address, progress=told.append)
    assert {(p.what, p.unit) for p in told} == {("verify", "bytes")}
    assert told[0].total is None and told[-1].done == told[-1].total == report.read_bytes
