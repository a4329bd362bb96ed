"""An S3 that refuses some requests, as where the credentials lack a right, and passes on the rest."""

from __future__ import annotations

from collections.abc import Collection

from tests.support.servers.http_stub import HttpStub, Request, Response, pass_on

__all__ = ["RIGHTS", "RefusingS3"]

RIGHTS = ("read", "write", "delete", "list")

_RIGHT_OF = {"GET": "read", "HEAD": "read", "PUT": "write", "POST": "write", "DELETE": "delete"}


class RefusingS3(HttpStub):
    """Stands before a server that checks no credentials.

    Args:
        url: that server's address.

    Attributes:
        lacks: the rights, of `RIGHTS`, that the credentials do not have.
        under: what the keys begin with for which they lack them.
        refusal: the status and the code with which it refuses.
        times: after how many refusals it refuses nothing any more; None: never.
        refused: how many requests were refused.
    """

    def __init__(self, url: str) -> None:
        super().__init__(self._answer)
        self._url = url
        self.lacks: Collection[str] = ()
        self.under: str = ""
        self.refusal: tuple[int, str] = (403, "AccessDenied")
        self.times: int | None = None
        self.refused: int = 0

    def _answer(self, request: Request) -> Response:
        is_listing = request.method == "GET" and "list-type" in request.query
        right = "list" if is_listing else _RIGHT_OF[request.method]
        key = request.path.split("/", 2)[-1]
        is_over = self.times is not None and self.refused >= self.times
        if right in self.lacks and not is_over and (is_listing or key.startswith(self.under)):
            self.refused += 1
            status, code = self.refusal
            body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>No</Message></Error>'
            return Response(status, body.encode(), {"content-type": "application/xml"})
        return pass_on(request, self._url)
