"""Make the pictures of the web page in docs/pictures: channels at work, in Debian's Chromium.

It needs the extra ``ui``, playwright and Pillow. Usage: ``python scripts/make_page_pictures.py``.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import spillable_stream as ss  # noqa: E402
from tests.support.browser import browser, serving  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
WARM_SECONDS = 45
ORDER = b'{"order": %d, "amount": %d, "currency": "EUR", "items": [{"sku": "A-%d", "count": 2}]}'


class Load:
    """Channels that are put to and taken from, each in threads of its own.

    Args:
        place: where they are.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be at work while the block runs."""
        small = {"minimum_required_space": 0, "overflow_timeout": 0.0}
        with ExitStack() as stack:
            orders = ss.Channel(self._place / "orders", memory_capacity=4000, overflow_capacity=60_000, **small)
            clicks = ss.Channel(self._place / "clicks", memory_capacity=2000, retention_ms=60_000, **small)
            schema = pa.schema([("station", pa.string()), ("temperature", pa.float64())])
            weather = ss.Channel(self._place / "weather", schema=schema, overflow_capacity=20_000, **small)
            for channel in (orders, clicks, weather):
                stack.enter_context(channel)
            self._start(self._put, orders, 900)
            self._start(self._put, clicks, 300)
            self._start(self._measure, weather)
            takes = ((orders, "billing", 160), (orders, "analytics", 120), (clicks, "sessions", 70))
            for channel, group, count in (*takes, (weather, "forecast", 12)):
                self._start(self._take, channel, group, count)
            try:
                yield
            finally:
                self._ended.set()
                for thread in self._threads:
                    thread.join()

    def _start(self, work: Any, *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _put(self, channel: ss.Channel, a_second: int) -> None:
        number = 0
        while not self._ended.wait(0.1 * random.uniform(0.5, 1.5)):
            count = random.randint(1, a_second // 5)
            with channel.put_transaction() as tx:
                tx.put_many(
                    ss.Event(ORDER % (number + i, random.randint(1, 500), i), {"source": "web"}) for i in range(count)
                )
            number += count

    def _measure(self, channel: ss.Channel) -> None:
        while not self._ended.wait(0.25):
            with channel.put_transaction() as tx:
                names = random.choices(["Graz", "Lyon", "Porto", "Turku"], k=15)
                tx.put_many({"station": name, "temperature": round(random.gauss(12, 6), 1)} for name in names)

    def _take(self, channel: ss.Channel, group: str, count: int) -> None:
        while not self._ended.wait(0.2):
            with channel.take_transaction(group) as tx:
                tx.take_many(count)


def main() -> None:
    """Make the pictures."""
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        with Load(Path("data")).running(), serving(Path(place), "data/orders", "data/clicks", "data/weather") as served:
            time.sleep(WARM_SECONDS)
            with browser() as running:
                _picture(running, "page-channels", "light", served.link, lambda page: None, height=520)
                _picture(running, "page-channel", "dark", f"{served.link}channel/0", lambda page: None)
                _picture(running, "page-events", "light", f"{served.link}channel/0", _look_at_events)


def _look_at_events(page: Any) -> None:
    page.get_by_role("tab", name="Events").click()
    page.get_by_role("button", name="Last events").click()
    page.locator("[data-part=events] summary").first.click()


def _picture(running: Any, name: str, scheme: str, link: str, prepare: Any, height: int = 900) -> None:
    """Take one picture, with few colours: it is small then."""
    page = running.new_context(color_scheme=scheme, viewport={"width": 1200, "height": height}).new_page()
    page.goto(link)
    page.locator(".s-tier").first.wait_for()
    prepare(page)
    time.sleep(3)  # the charts are drawn, and the first look's zeros are gone
    target = PICTURES / f"{name}.png"
    page.screenshot(path=target, full_page=name == "page-channel")
    image = Image.open(target).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    image.save(target, optimize=True)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
