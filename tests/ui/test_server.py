"""The page's server: where it listens, what it asks for, and what it withstands; over real sockets."""

from __future__ import annotations

import base64
import http.client
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spillable_stream import OptionError
from spillable_stream.ui.server import serve
from tests.support.browser import Served, serving

TOKEN = "0123456789abcdef-secret"


def get(port: int, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    """Ask for a path as it is written."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


def upgrade(port: int, **headers: str) -> int:
    """Return the status of an attempt to open the page's websocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    more = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}
    return get(port, "/_nicegui_ws/socket.io/?EIO=4&transport=websocket", **more, **headers).status


_ENDS_WHEN_TOLD = """
import os, signal, sys
from spillable_stream.ui.server import serve

signal.signal(signal.SIGTERM, lambda *_: print("seen"))
serve([sys.argv[1]], ready=lambda *_: os.kill(os.getpid(), signal.SIGTERM))
print("ended")
"""


def test_a_signal_of_whoever_has_just_read_the_address_ends_it(path: Path) -> None:
    program = [sys.executable, "-c", _ENDS_WHEN_TOLD, str(path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("seen\nended\n", 0), done.stderr


def test_it_listens_at_any_other_address_with_a_token_only(path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(OptionError, match="a token is needed"):
            serve([str(path)], host=host)
    with pytest.raises(OptionError, match="16 characters or more"):
        serve([str(path)], token="short")


def test_a_browser_gets_the_page_and_its_headers(served: Served) -> None:
    answer = get(served.port, "/")
    assert answer.status == 200 and "frame-ancestors 'none'" in (answer.getheader("Content-Security-Policy") or "")
    assert answer.getheader("Server") is None


@pytest.mark.parametrize(
    "path",
    ["/../../../../etc/passwd", "/..%2f..%2f..%2fetc%2fpasswd", "/channel/../../etc/passwd", "/channel/%2e%2e/%2e%2e",
     "/channel/99", "/channel/-1", "/channel/x", "/_nicegui/x/static/../../../../etc/passwd", "//etc/passwd",
     "/channel/9999999999999999999999", "/channel/0000000005", "/channel/%D9%A0", "/docs", "/openapi.json"],
)  # fmt: skip
def test_no_path_leads_out_of_the_page(served: Served, path: str) -> None:
    answer = get(served.port, path)
    body = answer.read().decode(errors="replace")
    assert answer.status in (200, 307, 404) and "root:" not in body and "openapi" not in body
    if answer.status == 200:
        assert "No such channel" in body or "NiceGUI" in body or "spillable" in body


def test_the_library_takes_no_path_for_a_file(served: Served) -> None:
    static = get(served.port, "/").read().decode().partition("/static/")[0].rpartition('"')[2]
    assert static.startswith("/_nicegui/")
    for path in ("/../../../../../etc/passwd", "/..%2f..%2f..%2f..%2fetc/passwd", "//etc/passwd", "/%2fetc/passwd"):
        for folder in ("static", "libraries", "components", "resources/x", "esm/x"):
            answer = get(served.port, f"{static}/{folder}{path}")
            assert answer.status in (404, 400, 500) and b"root:" not in answer.read()


def test_rebinding_and_other_sites_are_refused_also_on_the_socket(served: Served) -> None:
    assert get(served.port, "/", Host="evil.test").status == 421
    assert get(served.port, "/", Origin="http://evil.test").status == 403
    assert get(served.port, "/", method="POST", Origin="null").status == 403
    assert upgrade(served.port, Host="evil.test") == 403
    assert upgrade(served.port, Origin="http://evil.test") == 403
    assert upgrade(served.port, Origin=f"http://127.0.0.1:{served.port}") == 101


def test_a_token_is_asked_for_and_is_in_no_log(places: Path, tmp_path: Path) -> None:
    with serving(tmp_path, places / "orders", SPILLABLE_UI_TOKEN=TOKEN) as served:
        assert served.link.endswith(f"/?token={TOKEN}")
        assert get(served.port, "/").status == get(served.port, "/?token=wrong").status == 401
        assert upgrade(served.port) == 403
        answer = get(served.port, f"/?token={TOKEN}")
        assert (answer.status, answer.getheader("Location")) == (303, "/")
        cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
        assert get(served.port, "/", Cookie=cookie).status == 200
        assert upgrade(served.port, Cookie=cookie) == 101
    assert TOKEN not in served.log.read_text()


@pytest.mark.slow
def test_a_thousand_connections_do_not_end_it(places: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    opened: list[socket.socket] = []
    try:
        with serving(tmp_path, places / "orders") as served:
            for _ in range(1000):
                opened.append(socket.create_connection(("127.0.0.1", served.port), timeout=30))
            descriptors = Path(f"/proc/{served.process.pid}/fd")
            _until(lambda: len(list(descriptors.iterdir())) < 400)
            for connection in opened[:200]:
                connection.close()
            _until(lambda: get(served.port, "/").status == 200)
            assert served.process.poll() is None
    finally:
        for connection in opened:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _until(holds: object) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 60
    while True:
        try:
            if holds():  # type: ignore[operator]
                return
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)
