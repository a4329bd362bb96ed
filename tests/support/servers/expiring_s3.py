"""An S3 whose credentials expire: it passes on what has a valid session token, and answers the rest as S3 does."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.support.servers.http_stub import HttpStub, Request, Response, pass_on

__all__ = ["ExpiringS3", "token"]

_EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
)


def token(number: int) -> str:
    """Return the session token of these credentials, the first of which are number 0.

    Spark hides what contains "secret" or "token" in some places: this contains neither.
    """
    return f"hunter2-session-{number}"


class ExpiringS3(HttpStub):
    """Stands before a server that checks no credentials.

    Args:
        url: that server's address.
        lasts: how many commits to a channel credentials see, before the next ones replace them.
        overlap: how many are valid at a time.
        channel: the path of that channel, as ``/bucket/target``.
        on_next: called with the number of the credentials that are given out from now on.

    Attributes:
        lasts: as given.
        number: that of the newest credentials.
        refused: the requests that came with credentials that had expired, each with its session token.
    """

    def __init__(
        self, url: str, channel: str, lasts: int, *, overlap: int = 1, on_next: Callable[[int], object] = lambda _: None
    ) -> None:
        super().__init__(self._answer)
        self.number: int = 0
        self.refused: list[str] = []
        self._url = url
        self._commits = f"{channel}/log/"
        self.lasts: int = lasts
        self._overlap = overlap
        self._on_next = on_next
        self._seen = 0
        self._mutex = threading.Lock()

    def expire(self) -> None:
        """Let the credentials expire that are valid now; the next ones replace them."""
        with self._mutex:
            self.number += self._overlap

    def _answer(self, request: Request) -> Response:
        with self._mutex:
            valid = [token(n) for n in range(max(0, self.number - self._overlap + 1), self.number + 1)]
            sent = request.headers.get("x-amz-security-token")
            if sent not in valid:
                self.refused.append(f"{request.method} {request.path} with {sent!r}, of {valid}")
                return Response(400, _EXPIRED, {"content-type": "application/xml"})
        response = pass_on(request, self._url)
        if request.method == "PUT" and request.path.startswith(self._commits) and response.status == 200:
            with self._mutex:
                self._seen += 1
                if self._seen % self.lasts == 0:
                    self.number += 1
                    self._on_next(self.number)
        return response
