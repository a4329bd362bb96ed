"""A process that was forked from one with a runtime of its own is refused, and no other is."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream.objects import forked
from spillable_stream.objects.cloud_listing import CloudListing
from spillable_stream.objects.cloud_store import PART_BYTES, CloudStore
from spillable_stream.objects.forked import begin_requests, is_orphan
from spillable_stream.objects.store import StoreError
from tests.support.cloud_stores import GOOGLE, S3
from tests.support.forks import in_child
from tests.support.servers.gcs_stub import GcsStub


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests of this process did."""
    monkeypatch.setattr(forked._State, "pid", 0)
    monkeypatch.setattr(forked._State, "is_orphan", False)


def is_refused() -> bool:
    try:
        begin_requests("s3://bucket/orders")
    except StoreError as e:
        return not e.may_have_happened and e.is_lasting and "forked" in str(e) and is_orphan()
    return False


def test_a_child_of_a_process_without_requests_is_as_any_other() -> None:
    in_child(lambda: not is_refused() and not is_refused() and not is_orphan())
    assert not is_refused()


def test_a_child_of_a_process_with_requests_is_refused_and_so_is_its_child() -> None:
    begin_requests("s3://bucket/orders")
    in_child(is_refused)
    in_child(lambda: in_child(is_refused))
    assert not is_refused() and not is_orphan()


def test_a_fork_that_python_did_not_see_is_known_by_the_process_id(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_requests("s3://bucket/orders")
    monkeypatch.setattr(forked._State, "pid", os.getpid() + 1)
    assert is_refused()


def test_a_child_with_the_process_id_of_its_parent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first process of a new namespace of process IDs may be."""
    begin_requests("s3://bucket/orders")

    def as_the_parent() -> bool:
        monkeypatch.setattr(forked._State, "pid", os.getpid())
        return is_refused()

    in_child(as_the_parent)


# ── stores ───────────────────────────────────────────────────────────────────────────────────────


def is_refused_by(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except StoreError as e:
        return "forked after its parent had used an object store" in str(e) and not e.may_have_happened
    return False


@pytest.mark.usefixtures("cloud_settings", "no_secret_is_logged")
def test_a_child_forked_before_the_first_request_uses_the_store(gcs: GcsStub) -> None:
    """In a process of its own: this one may have sent requests."""
    program = (
        "import os\n"
        "from spillable_stream.objects.cloud_store import CloudStore\n"
        "from spillable_stream.objects.location import Location\n"
        "store = CloudStore(Location('gs', 'bucket', 'orders'))\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(0 if store.create('log/1', b'of the child') else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert store.create('log/2', b'of the parent')\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert set(gcs.objects) == {("bucket", "orders/log/1"), ("bucket", "orders/log/2")}


@pytest.mark.usefixtures("cloud_settings", "no_secret_is_logged")
def test_a_child_forked_after_the_first_request_is_refused_at_once_and_the_parent_is_not(gcs: GcsStub) -> None:
    store = CloudStore(GOOGLE)
    assert store.create("log/1", b"data")
    upload = store.upload("segments/1")
    upload.write(bytes(PART_BYTES + 1))
    asked: list[Callable[[], object]] = [
        lambda: store.create("log/2", b""),
        lambda: store.replace("log/2", b""),
        lambda: store.get("log/1"),
        lambda: store.get_range("log/1", 0, 2),
        lambda: store.delete("log/1"),
        lambda: list(store.list("")),
        lambda: upload.write(b"more"),
        upload.finish,
        lambda: CloudStore(S3).create("log/1", b""),
        lambda: pickle.loads(pickle.dumps(store)).get("log/1"),
    ]
    for ask in asked:
        in_child(lambda ask=ask: is_refused_by(ask))
    in_child(lambda: upload.discard() is None)
    upload.finish()
    assert bytes(store.get("log/1")) == b"data"
    assert {request.method for request in gcs.requests} <= {"PUT", "POST", "GET"}
    assert {request.path for request in gcs.requests} <= {"/bucket/orders/log/1", "/bucket/orders/segments/1"}
    assert sum(request.method == "GET" for request in gcs.requests) == 1, "none of a child"


class Dropped:
    """What notes that it was dropped: what is obstore's may wait forever then for a thread of the parent."""

    count = 0

    def __del__(self) -> None:
        type(self).count += 1


@pytest.mark.usefixtures("cloud_settings")
@pytest.mark.parametrize("holds", ["clients", "upload", "listing"])
def test_a_forked_child_drops_nothing_of_its_parents_whatever_it_lets_go(
    holds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients are not shared for long, so a store may be the last that has its own."""
    monkeypatch.setattr(Dropped, "count", 0)
    begin_requests("s3://bucket/orders")
    store = CloudStore(S3)
    upload, listing = store.upload("segments/1"), CloudListing(store._obstore, 15.0)
    held: list[object] = [store, upload, listing]
    holder, name = {"clients": (store, "_made"), "upload": (upload, "_writer"), "listing": (listing, "_pages")}[holds]
    setattr(holder, name, Dropped())
    del store, upload, listing, holder

    def let_go() -> bool:
        held.clear()
        gc.collect()
        return Dropped.count == 0

    in_child(let_go)
    held.clear()
    gc.collect()
    assert Dropped.count == 1, "and its parent drops it"


def test_a_forked_child_that_ends_as_programs_do_drops_nothing_of_its_parents() -> None:
    program = (
        "import os, sys\n"
        "from spillable_stream.objects.forked import begin_requests, hold_in_children\n"
        "class Dropped:\n"
        "    def __del__(self, write=os.write, pid=os.getpid):\n"
        "        write(1, b'dropped by %d ' % (pid() == parent))\n"
        "class Holder:\n"
        "    def held(self):\n"
        "        return self.dropped\n"
        "parent, holder = os.getpid(), Holder()\n"
        "holder.dropped = Dropped()\n"
        "hold_in_children(holder)\n"
        "begin_requests('s3://bucket/orders')\n"
        "if os.fork():\n"
        "    assert os.wait()[1] == 0\n"
        "del holder\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("dropped by 1 ", "")
