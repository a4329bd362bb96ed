"""An S3 whose credentials lack some rights: it refuses what needs them, and passes on the rest."""

from __future__ import annotations

from collections.abc import Collection

from tests.support.servers.http_stub import HttpStub, Request, Response, pass_on

__all__ = ["RIGHTS", "RefusingS3"]

RIGHTS = ("read", "write", "delete", "list")

_DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'
)
_RIGHT_OF = {"GET": "read", "HEAD": "read", "PUT": "write", "POST": "write", "DELETE": "delete"}


class RefusingS3(HttpStub):
    """Stands before a server that checks no credentials.

    Args:
        url: that server's address.

    Attributes:
        lacks: the rights, of `RIGHTS`, that the credentials do not have.
        under: what the keys begin with for which they lack them.
        refused: how many requests were refused.
    """

    def __init__(self, url: str) -> None:
        super().__init__(self._answer)
        self._url = url
        self.lacks: Collection[str] = ()
        self.under: str = ""
        self.refused: int = 0

    def _answer(self, request: Request) -> Response:
        is_listing = request.method == "GET" and "list-type" in request.query
        right = "list" if is_listing else _RIGHT_OF[request.method]
        key = request.path.split("/", 2)[-1]
        if right in self.lacks and (is_listing or key.startswith(self.under)):
            self.refused += 1
            return Response(403, _DENIED, {"content-type": "application/xml"})
        return pass_on(request, self._url)
