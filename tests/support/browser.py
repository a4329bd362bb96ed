"""A real browser, and the page that it opens: ``spillable ui`` in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import pythons

__all__ = ["NEEDS_BROWSER", "Served", "browser", "new_tab", "serving"]

_PATIENCE_MILLISECONDS = 120_000  # a browser among the laboratory's processes may wait long for its turn
CHROMIUM = shutil.which("chromium")
WHY_NO_BROWSER = "Chromium is not installed: Debian's package chromium has it"
NEEDS_BROWSER = pytest.mark.skipif(CHROMIUM is None, reason=WHY_NO_BROWSER)

_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Served(NamedTuple):
    """A page that is served.

    Args:
        link: what was printed: the address, with the token if there is one.
        port: the port.
        process: the server.
        log: what it says on standard error.
    """

    link: str
    port: int
    process: subprocess.Popen[str]
    log: Path


@contextmanager
def serving(tmp_path: Path, *arguments: object, **environment: str) -> Iterator[Served]:
    """Serve the page of ``spillable ui`` on a free port while the block runs.

    Args:
        tmp_path: where the server's log goes.
        arguments: paths of channels and options.
        environment: variables of the server.
    """
    log = tmp_path / "ui.log"
    command = [sys.executable, "-m", "spillable_stream", "ui", *map(str, arguments), "--port", "0"]
    with log.open("w") as errors:
        process = pythons.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **environment}
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline().split()
        assert said[:1] == ["open"], log.read_text()
        yield Served(said[1], int(said[1].rpartition(":")[2].partition("/")[0]), process, log)
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()


@contextmanager
def browser() -> Iterator[Any]:
    """Run a browser without a window while the block runs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=[*_ARGUMENTS])
        try:
            yield running
        finally:
            running.close()


@contextmanager
def new_tab(running: Any, **options: object) -> Iterator[Any]:
    """Open a new tab while the block runs, of a browser that knows nothing yet; no request may go beyond this host.

    What the page logs, and what it can't load, is printed: a test that fails shows it. The files of the page come
    through this process: a browser gives up what it loads when the host gets an address or loses one, as it does
    where another test makes a network.

    Args:
        running: the browser.
        options: what else the browser is told, such as ``color_scheme``.
    """
    context = running.new_context(**options)
    context.set_default_timeout(_PATIENCE_MILLISECONDS)
    context.route("http://127.0.0.1:*/**", lambda route: route.fulfill(response=route.fetch(max_redirects=0)))
    page = context.new_page()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    page.on("console", lambda message: print("browser:", message.text))
    page.on("pageerror", lambda error: print("browser:", error))
    page.on("requestfailed", lambda request: print("browser:", request.url, request.failure))
    page.on("response", lambda answer: answer.ok or print("browser:", answer.url, answer.status))
    try:
        yield page
    finally:
        context.unroute_all(behavior="ignoreErrors")
        context.close()
    elsewhere = [url for url in asked if not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:"))]
    assert not elsewhere
