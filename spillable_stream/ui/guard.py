"""Decides which browsers may open the page: stands before the application, for HTTP and for the websocket alike.

* The header ``Host`` must name this host. A page of somebody else's whose name is made to lead here (DNS rebinding)
  names another one.
* The header ``Origin``, which browsers send with everything that another site's page can start, must be this page's.
* Where there is a token, the browser must have it: in a cookie, which it gets for the token, once.
* So many requests and so many websockets at a time, and no more.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

__all__ = ["Guard", "is_loopback"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_COOKIE = "spillable_token"
_METHODS = ("GET", "HEAD", "POST")
_MOST_LOGIN_BYTES = 1024
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]
_FORM = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>spillable: token</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>body{font:16px/1.5 system-ui;max-width:30rem;margin:15vh auto;padding:0 1rem}input,button{font:inherit;
padding:.4rem .6rem}input{width:100%;box-sizing:border-box;margin:.3rem 0 1rem}</style></head>
<body><main><h1>Token</h1><p role="status">NOTICE</p><form method="post" action="/token">
<label for="token">The token that <code>spillable ui</code> printed</label>
<input id="token" name="token" type="password" autocomplete="off" required autofocus>
<button type="submit">Open</button></form></main></body></html>"""


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from its own host only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Guard:
    """An ASGI application before another.

    Args:
        inner: the application.
        names: the names of this host that the header ``Host`` may have, beside addresses.
        token: what a browser must have; "" for none.
        most_requests: how many requests are answered at a time.
        most_sockets: how many websockets are open at a time: each open page has one.
    """

    def __init__(
        self,
        inner: Application,
        *,
        names: Iterable[str] = ("localhost",),
        token: str = "",
        most_requests: int = 64,
        most_sockets: int = 32,
    ) -> None:
        self._inner = inner
        self._names = {name.lower() for name in names}
        self._token = token.encode()
        self._cookie = hmac.new(self._token, b"spillable ui", hashlib.sha256).hexdigest()
        self._left = {"http": most_requests, "websocket": most_sockets}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        kind = scope["type"]
        if kind not in self._left:
            await self._inner(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if refusal := self._refusal(scope, headers):
            await _refuse(kind, send, *refusal)
        elif self._token and (not self._has_cookie(headers) or _has_token(scope)):
            await self._ask_for_token(scope, receive, send)
        elif not self._left[kind]:
            await _refuse(kind, send, HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; try again later")
        else:
            self._left[kind] -= 1
            try:
                await self._inner(scope, receive, _with_headers(send))
            finally:
                self._left[kind] += 1

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[HTTPStatus, str] | None:
        """Return why a request is refused, whoever sends it."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if scope["type"] == "http" and scope["method"] not in _METHODS:
            return HTTPStatus.METHOD_NOT_ALLOWED, "this page answers GET and POST"
        if not self._is_this_host(host):
            return HTTPStatus.MISDIRECTED_REQUEST, "this page is not at that name: open it at this host's address"
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return HTTPStatus.FORBIDDEN, "another site's page may not use this one"
        return None

    def _is_this_host(self, host: str) -> bool:
        """Tell whether a header ``Host`` names this host: by an address, which no rebinding can forge, or by a name."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
            return True
        except ValueError:
            return name.lower() in self._names

    def _has_cookie(self, headers: dict[str, str]) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
        except CookieError:
            found = None
        return hmac.compare_digest((found.value if found else "").encode(), self._cookie.encode())

    async def _ask_for_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give the cookie for the token, and ask for the token without it."""
        if scope["type"] == "websocket":
            await _refuse("websocket", send, HTTPStatus.UNAUTHORIZED, "the token is missing")
            return
        query = _query(scope)
        given = next((value for name, value in query if name == "token"), None)
        target = scope["path"]
        if given is None and (scope["method"], scope["path"]) == ("POST", "/token"):
            given, target = await _posted_token(receive), "/"
        if given is not None and hmac.compare_digest(given.encode(errors="replace"), self._token):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            place = "/" + target.lstrip("/\\") + (f"?{rest}" if rest else "")
            cookie = f"{_COOKIE}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"
            more = [(b"location", place.encode("utf-8", "replace")), (b"set-cookie", cookie.encode())]
            await _answer(send, HTTPStatus.SEE_OTHER, "", more)
            return
        notice = "" if given is None else "This is not the token."
        page = _FORM.replace("NOTICE", notice)
        await _answer(send, HTTPStatus.UNAUTHORIZED, page, [(b"content-type", b"text/html; charset=utf-8")])


def _has_token(scope: Scope) -> bool:
    """Tell whether an address has the token: what is behind may log it, so it goes no further."""
    return scope["type"] == "http" and any(name == "token" for name, _ in _query(scope))


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


async def _posted_token(receive: Receive) -> str:
    """Return the token of a posted form; "" without one."""
    body = b""
    while len(body) <= _MOST_LOGIN_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            found: dict[str, str] = dict(parse_qsl(body.decode("latin-1")))
            return found.get("token", "")
    return ""


async def _refuse(kind: str, send: Send, status: HTTPStatus, text: str) -> None:
    if kind == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": text})
    else:
        await _answer(send, status, f"{text}\n", [(b"content-type", b"text/plain; charset=utf-8")])


async def _answer(send: Send, status: HTTPStatus, text: str, headers: list[tuple[bytes, bytes]]) -> None:
    body = text.encode()
    more = [(b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status.value, "headers": [*_HEADERS, *headers, *more]})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
        await send(message)

    return send_more
