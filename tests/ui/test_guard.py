"""Who may open the page."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from spillable_stream.ui.guard import Guard, is_loopback

TOKEN = "a-token-of-some-length"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


class Page:
    """An application that counts who came in, and stays inside while it is told to."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.leave = asyncio.Event()
        self.leave.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.entered.append(scope["type"])
        await self.leave.wait()
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-page", b"1")]})
            await send({"type": "http.response.body", "body": b"page"})


async def asked(
    guard: Guard,
    path: str = "/",
    kind: str = "http",
    method: str = "GET",
    body: Sequence[bytes] = (b"",),
    **headers: str,
) -> Answer:
    """Ask as a browser does; of a websocket that is refused the status is its code, of one that is open 101."""
    sent: list[Any] = []
    parts = list(body)

    async def receive() -> Any:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    given = {"host": "localhost:8765", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": kind, "method": method, "path": path, "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }  # fmt: skip
    await guard(scope, receive, send)
    if kind == "websocket":
        return Answer(sent[0]["code"] if sent else 101, {}, sent[0]["reason"] if sent else "")
    said = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], said, sent[1]["body"].decode())


def ask(guard: Guard, path: str = "/", **more: Any) -> Answer:
    return asyncio.run(asked(guard, path, **more))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8765", "[::1]:8765", "192.0.2.7", "here.test"])
def test_this_host_is_known_by_its_addresses_and_its_names(host: str) -> None:
    assert ask(Guard(Page(), names=["localhost", "here.test"]), host=host).status == 200


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("host", ["evil.test", "evil.test:8765", "localhost.evil.test", "", "127.0.0.1.evil.test", "["])
def test_a_name_that_was_made_to_lead_here_is_refused(host: str, kind: str) -> None:
    page = Page()
    assert ask(Guard(page), kind=kind, host=host).status in (421, 1008)
    assert not page.entered


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "http://localhost", "file://"])
def test_another_sites_page_is_refused(origin: str, kind: str) -> None:
    page = Page()
    assert ask(Guard(page), kind=kind, origin=origin).status in (403, 1008)
    assert not page.entered
    assert ask(Guard(page), kind=kind, origin="http://localhost:8765").status in (200, 101)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(method: str) -> None:
    assert ask(Guard(Page()), method=method).status == 405


def test_everything_says_that_it_comes_from_here_and_is_framed_by_nobody() -> None:
    for answer in (ask(Guard(Page())), ask(Guard(Page(), token=TOKEN)), ask(Guard(Page()), host="evil.example")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert ask(Guard(Page())).headers["x-page"] == "1"


def test_without_the_token_nothing_is_shown_and_no_socket_opens() -> None:
    page = Page()
    guard = Guard(page, token=TOKEN)
    paths = ("/", "/channel/0", "/_nicegui/x", "/?token=wrong", f"/?token={TOKEN}x", "/?token=")
    answers = [ask(guard, path) for path in paths]
    assert {answer.status for answer in answers} == {401}
    assert all("<form" in answer.body and TOKEN not in answer.body for answer in answers)
    assert ask(guard, kind="websocket").status == 1008
    for cookie in ("spillable_token=", f"spillable_token={TOKEN}", "spillable_token=é", "=;;;=", 'a="'):
        assert ask(guard, cookie=cookie).status == 401
        assert ask(guard, kind="websocket", cookie=cookie).status == 1008
    assert not page.entered


def test_the_token_gives_a_cookie_once_and_leaves_the_address() -> None:
    guard = Guard(Page(), token=TOKEN)
    answer = ask(guard, f"/channel/0?token={TOKEN}&a=b%20c")
    assert (answer.status, answer.headers["location"]) == (303, "/channel/0?a=b+c")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    name = cookie.partition(";")[0]
    assert ask(guard, cookie=f"other=1; {name}").status == 200
    assert ask(guard, kind="websocket", cookie=name).status == 101
    assert ask(Guard(Page(), token=TOKEN[::-1]), cookie=name).status == 401, "of another token"


def test_the_token_goes_no_further_than_here_even_with_the_cookie() -> None:
    """What is behind may log an address, such as that of a page which is not there."""
    page = Page()
    guard = Guard(page, token=TOKEN)
    cookie = ask(guard, f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    answer = ask(guard, f"/nothing?a=1&token={TOKEN}", cookie=cookie)
    assert (answer.status, answer.headers["location"], page.entered) == (303, "/nothing?a=1", [])


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "///evil.example/x"])
def test_the_token_leads_to_no_other_site(path: str) -> None:
    answer = ask(Guard(Page(), token=TOKEN), f"{path}?token={TOKEN}")
    assert answer.status == 303 and answer.headers["location"] in ("/evil.example", "/evil.example/x")


def test_the_form_takes_the_token_too_and_reads_no_more_than_a_little() -> None:
    guard = Guard(Page(), token=TOKEN)
    form = {"method": "POST", "origin": "http://localhost:8765"}
    answer = ask(guard, "/token", body=[b"token=", TOKEN.encode()], **form)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    wrong = ask(guard, "/token", body=[b"token=wrong"], **form)
    assert wrong.status == 401 and "not the token" in wrong.body
    assert ask(guard, "/token", body=[b"x" * 600] * 100, **form).status == 401
    assert (
        ask(guard, "/token", body=[b"token=" + TOKEN.encode()], method="POST", origin="http://evil.example").status
        == 403
    )


@pytest.mark.parametrize(("kind", "refused"), [("http", 503), ("websocket", 1008)])
def test_so_many_come_in_at_a_time_and_no_more(kind: str, refused: int) -> None:
    async def flood() -> list[int]:
        page = Page()
        page.leave.clear()
        guard = Guard(page, most_requests=3, most_sockets=3)
        inside = [asyncio.create_task(asked(guard, kind=kind)) for _ in range(3)]
        await asyncio.sleep(0)
        found = [(await asked(guard, kind=kind)).status for _ in range(1000)]
        page.leave.set()
        await asyncio.gather(*inside)
        return [*set(found), (await asked(guard, kind=kind)).status]

    assert asyncio.run(flood()) == [refused, 200 if kind == "http" else 101]


def test_addresses_that_only_this_host_reaches() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "example.org", "")))
