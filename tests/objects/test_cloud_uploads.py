"""Objects that are sent to a cloud in parts."""

from __future__ import annotations

import threading

import pytest

from spillable_stream.objects import cloud_store
from spillable_stream.objects.cloud_store import PART_BYTES, CloudStore
from tests.support.cloud_stores import GOOGLE, error_of, impatient
from tests.support.servers.gcs_stub import GcsStub
from tests.support.servers.http_stub import Request, Response
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("cloud_settings", "no_secret_is_logged")


def test_a_small_upload_is_one_request_and_a_large_one_is_sent_in_parts(gcs: GcsStub) -> None:
    store = CloudStore(GOOGLE)
    for size, expected in ((0, 1), (100, 1), (PART_BYTES, 1), (2 * PART_BYTES + 1, 5)):
        gcs.requests.clear()
        upload = store.upload("segments/1")
        left = size
        while left:
            upload.write(bytes(min(left, 9 << 20)))
            left -= min(left, 9 << 20)
        upload.finish()
        assert len(gcs.objects["bucket", "orders/segments/1"]) == size
        assert len(gcs.requests) == expected


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_upload_whose_last_answer_is_lost_is_finished_if_the_object_is_there(gcs: GcsStub, is_whole: bool) -> None:
    """The client asks again, and the store says that it knows no such upload: it is over."""
    answer, lost = gcs.answer, list[Request]()

    def lose_the_end(request: Request) -> Response | None:
        if request.method == "POST" and "uploadId" in request.query and not lost:
            lost.append(request)
            answer(request)
            if not is_whole:
                gcs.objects["bucket", "orders/segments/1"] = b"another one"
            return None
        return answer(request)

    gcs.answer = lose_the_end
    upload = CloudStore(GOOGLE).upload("segments/1")
    upload.write(bytes(PART_BYTES + 1))
    if is_whole:
        upload.finish()
    else:
        assert "the parts of the upload are gone" in str(error_of(upload.finish))
    assert lost and len(gcs.objects["bucket", "orders/segments/1"]) == (PART_BYTES + 1 if is_whole else 11)


def test_what_is_kept_of_an_upload_is_not_copied(gcs: GcsStub) -> None:
    upload = CloudStore(GOOGLE).upload("segments/1")
    data = bytes(10 << 20)
    upload.write(data)
    assert upload._kept[0] is data


def test_a_discarded_upload_leaves_no_parts_in_the_bucket(gcs: GcsStub) -> None:
    upload = CloudStore(GOOGLE).upload("segments/1")
    for _ in range(9):
        upload.write(bytes(8 << 20))
    assert gcs.uploads
    upload.discard()
    assert not gcs.uploads and not gcs.objects


def test_an_upload_whose_parts_fail_is_an_error_and_can_be_discarded(
    gcs: GcsStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = gcs.answer
    gcs.answer = lambda request: Response(403) if "partNumber" in request.query else answer(request)
    upload = impatient(GOOGLE).upload("segments/1")

    def write() -> None:
        for _ in range(12):
            upload.write(bytes(8 << 20))
        upload.finish()

    assert "may not write" in str(error_of(write))
    upload.discard()
    assert not gcs.objects


def test_a_discard_does_not_wait_for_a_silent_store(gcs: GcsStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_store, "_DISCARD_SECONDS", 0.0)
    upload = CloudStore(GOOGLE).upload("segments/1")
    upload.write(bytes(PART_BYTES + 1))
    answer, silence = gcs.answer, threading.Event()

    def answer_late(request: Request) -> Response | None:
        silence.wait(60)
        return answer(request)

    gcs.answer = answer_late
    upload.discard()
    assert gcs.uploads
    silence.set()
    wait_until(lambda: not gcs.uploads)
