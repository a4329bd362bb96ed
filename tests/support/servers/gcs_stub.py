"""Google Cloud Storage as far as a store asks for it: its XML API, in this process."""

from __future__ import annotations

import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import md5
from itertools import count
from xml.sax.saxutils import escape

from tests.support.servers.http_stub import HttpStub, Request, Response

__all__ = ["GcsStub"]

_STORED_AT = "Mon, 23 Nov 2026 12:00:00 GMT"


class GcsStub(HttpStub):
    """A server with some buckets. One lock makes every request atomic.

    Args:
        buckets: the names of the buckets.
        page: how many objects a page of a listing has.

    Attributes:
        objects: all objects by bucket and key.
        times: when each was written.
        generations: a number that no other content of an object has.
        uploads: the parts of uploads that are under way, by the IDs of these.
        write_seconds: how much time there is between two changes of an object, at least; Google says one second. What
            comes sooner is answered 429, whatever its condition.
        throttled: how many requests were.
    """

    def __init__(self, buckets: Iterable[str] = ("bucket",), page: int = 1000) -> None:
        super().__init__(self._answer)
        self.buckets = set(buckets)
        self.objects: dict[tuple[str, str], bytes] = {}
        self.times: dict[tuple[str, str], str] = {}
        self.generations: dict[tuple[str, str], int] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.write_seconds: float = 0.0
        self.throttled: int = 0
        self._changed_at: dict[tuple[str, str], float] = {}
        self._page = page
        self._ids = count(1)
        self._lock = threading.Lock()

    def _answer(self, request: Request) -> Response:
        bucket, _, key = request.path.lstrip("/").partition("/")
        with self._lock:
            if bucket not in self.buckets:
                return _error(404, "NoSuchBucket")
            if not key:
                return self._list(bucket, request)
            if "uploads" in request.query or "uploadId" in request.query:
                return self._upload(bucket, key, request)
            if self.write_seconds and request.method in ("PUT", "DELETE"):
                return self._limited((bucket, key), request)
            return getattr(self, f"_{request.method.lower()}")((bucket, key), request)

    def _limited(self, at: tuple[str, str], request: Request) -> Response:
        now = time.monotonic()
        if now - self._changed_at.get(at, float("-inf")) < self.write_seconds:
            self.throttled += 1
            return _error(429, "SlowDown")
        response = self._put(at, request) if request.method == "PUT" else self._delete(at, request)
        if response.status < 300:
            self._changed_at[at] = now
        return response

    def _put(self, at: tuple[str, str], request: Request) -> Response:
        wanted = request.headers.get("x-goog-if-generation-match")
        if wanted is not None and int(wanted) != self.generations.get(at, 0):
            return _error(412, "PreconditionFailed")
        self._keep(at, request.body)
        return Response(200, headers=self._about(at))

    def _keep(self, at: tuple[str, str], data: bytes) -> None:
        self.objects[at], self.times[at] = data, datetime.now(UTC).isoformat(timespec="milliseconds")
        self.generations[at] = next(self._ids)

    def _about(self, at: tuple[str, str]) -> dict[str, str]:
        return _about(self.objects[at]) | {"x-goog-generation": str(self.generations[at])}

    def _get(self, at: tuple[str, str], request: Request) -> Response:
        data = self.objects.get(at)
        if data is None:
            return _error(404, "NoSuchKey")
        wanted = request.headers.get("range")
        if wanted is None:
            return Response(200, data, self._about(at))
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data)) + 1, len(data))
        if start >= len(data):
            return _error(416, "InvalidRange")
        return Response(
            206, data[start:end], self._about(at) | {"content-range": f"bytes {start}-{end - 1}/{len(data)}"}
        )

    def _delete(self, at: tuple[str, str], request: Request) -> Response:
        self.generations.pop(at, None)
        return Response(204) if self.objects.pop(at, None) is not None else _error(404, "NoSuchKey")

    def _list(self, bucket: str, request: Request) -> Response:
        prefix = request.query.get("prefix", "")
        after = request.query.get("continuation-token", "")
        keys = sorted(k for b, k in self.objects if b == bucket and k.startswith(prefix) and k > after)
        folders: set[str] = set()
        if delimiter := request.query.get("delimiter"):
            folders = {
                prefix + k[len(prefix) :].split(delimiter)[0] + delimiter for k in keys if delimiter in k[len(prefix) :]
            }
            keys = [k for k in keys if delimiter not in k[len(prefix) :]]
        page, more = keys[: self._page], keys[self._page :]
        contents = "".join(
            f"<Contents><Key>{escape(k)}</Key><Size>{len(self.objects[bucket, k])}</Size><ETag>x</ETag>"
            f"<LastModified>{self.times[bucket, k]}</LastModified></Contents>"
            for k in page
        )
        rest = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        common = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        return _xml(f"<ListBucketResult><Name>{bucket}</Name>{contents}{common}{rest}</ListBucketResult>")

    def _upload(self, bucket: str, key: str, request: Request) -> Response:
        if "uploads" in request.query:
            upload = f"upload-{next(self._ids)}"
            self.uploads[upload] = {}
            return _xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")
        upload = request.query["uploadId"]
        if upload not in self.uploads:
            return _error(404, "NoSuchUpload")
        if request.method == "DELETE":
            del self.uploads[upload]
            return Response(204)
        if request.method == "PUT":
            self.uploads[upload][int(request.query["partNumber"])] = request.body
            return Response(200, headers=_about(request.body))
        parts = self.uploads.pop(upload)
        numbers = [int(n.text or 0) for n in ET.fromstring(request.body).iter() if n.tag.endswith("PartNumber")]
        self._keep((bucket, key), b"".join(parts[n] for n in numbers))
        return _xml("<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")


def _about(data: bytes) -> dict[str, str]:
    etag = f'"{md5(data).hexdigest()}"'
    return {"etag": etag, "last-modified": _STORED_AT, "x-goog-generation": "1", "content-type": "binary/octet-stream"}


def _xml(text: str) -> Response:
    return Response(200, f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode(), {"content-type": "application/xml"})


def _error(status: int, code: str) -> Response:
    return Response(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode())
