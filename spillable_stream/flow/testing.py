"""Unit tests of configurations: events in, and which of them reach which channel. No channel and no port is touched.

A test runs the interceptors and the selector of one source, with a fixed clock and host. From pytest,
`route` does it; `spillable test` runs the tests of a TOML file::

    files = ["flume.conf"]                      # relative to this file

    [[test]]
    name = "errors go to c2"
    agent = "a1"
    source = "r1"
    now = 2026-11-25T08:00:00Z
    events = [{body = "ERROR disk full", headers = {app = "shop"}}, {body = "INFO started"}]

    [test.channels.c2]
    bodies = ["ERROR disk full"]
    headers = [{app = "shop", level = "ERROR"}]

    [test.channels.c1]
    count = 1

Only what a test names is compared: of each channel ``bodies``, ``headers`` and ``count``; of the whole ``dropped``, how
many events reach no channel, and ``dead``, how many an interceptor can't pass.
"""

from __future__ import annotations

import os
import random
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from spillable_stream.channel.event import Event
from spillable_stream.error_text import naming
from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.builder import build
from spillable_stream.flow.configuration.model import SourceConfig
from spillable_stream.flow.configuration.registry import nearest
from spillable_stream.flow.event_batch import EventInput, events_of, select_rows
from spillable_stream.flow.interceptors.base import InterceptorChain
from spillable_stream.flow.loading import load
from spillable_stream.flow.surroundings import Surroundings
from spillable_stream.shown_value import shown

__all__ = [
    "ConfigurationTest",
    "ExpectedChannel",
    "Routed",
    "TestReport",
    "read_tests",
    "route",
    "run_file",
    "run_test",
]

_NOW = datetime(2000, 1, 1, tzinfo=UTC)
_TYPES = {str: "text", int: "whole number", list: "list", dict: "table", datetime: "time"}  # as TOML's users say
_MOST_BYTES = 16 << 20  # of a file of tests
_HOST, _ADDRESS = "host.example", "192.0.2.1"  # a name and an address that documentation may use

PathOrPaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Routed(dict[str, list[Event]]):
    """The events of each channel of a source, by its name.

    Attributes:
        dropped: how many events reach no channel.
        dead: how many events an interceptor can't pass.
    """

    def __init__(self, channels: Mapping[str, list[Event]], dropped: int, dead: int) -> None:
        super().__init__(channels)
        self.dropped = dropped
        self.dead = dead


def route(
    paths: PathOrPaths,
    agent: str,
    source: str,
    events: EventInput,
    *,
    now: datetime = _NOW,
    system: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    mapped: Mapping[str, str] | None = None,
) -> Routed:
    """Return the events that reach each channel, as a source's interceptors and selector send them there.

    Args:
        paths: the configuration's file, or several of them: a later one wins.
        agent: the agent's name.
        source: the source's name.
        events: the events as they come to the source.
        now: what the clock says.
        system: what ``${sys:X}`` stands for.
        environment: what ``${env:X}`` stands for; the process's environment by default.
        mapped: names of Java classes in the files, each with a Python class, ``module:Class``.

    Raises:
        OptionError: the source does not run; the message says why.
        OSError: a file can't be read.
    """
    config = _source_of(paths, agent, source, system, environment, mapped)
    chain = InterceptorChain([build(interceptor) for interceptor in config.interceptors], _standing_still(now))
    chain.initialize()
    try:
        passed, rejected = chain.screen(events)
    finally:
        chain.close()
    selector = build(config.selector)
    selector.bind(config.channels)
    routes = selector.select(passed, 1)
    channels: dict[str, list[Event]] = {name: [] for name in config.channels}
    reached: set[int] = set()
    for rows_of in (routes.required, routes.optional):
        for name, rows in rows_of.items():
            channels[name] += events_of(select_rows(passed, rows))
            reached |= set(range(passed.num_rows)) if rows is None else set(rows.to_pylist())
    return Routed(channels, _count(events) - len(rejected) - len(reached), len(rejected))


def _source_of(
    paths: PathOrPaths,
    agent: str,
    source: str,
    system: Mapping[str, str] | None,
    environment: Mapping[str, str] | None,
    mapped: Mapping[str, str] | None,
) -> SourceConfig:
    loaded = load(paths, name=agent, system=system, environment=environment, mapped=mapped)
    sources = loaded.agents[agent].sources if agent in loaded.agents else ()
    found = next((config for config in sources if config.name == source), None)
    if found is None:
        path = f"{agent}.sources.{source}"
        about = [str(f) for f in loaded.errors if f.component in ("", agent) or f.component.startswith(path)]
        has = f"the sources that run are {', '.join(s.name for s in sources)}" if sources else "no source of it runs"
        raise OptionError(f"the source {source} of {agent} does not run: " + ("; ".join(about) or has))
    return found


def _standing_still(now: datetime) -> Surroundings:
    """Return a world in which it is always the same time, on a host of the documentation, and chance repeats."""
    now_ms = int(now.timestamp() * 1000)
    return Surroundings(lambda: now_ms, lambda: _HOST, lambda: _ADDRESS, random.Random(0).randbytes)


def _count(events: EventInput) -> int:
    return events.num_rows if hasattr(events, "num_rows") else len(list(events))


@dataclass(frozen=True, slots=True)
class ExpectedChannel:
    """What a channel must get; None for what is not compared.

    Args:
        bodies: the bodies of its events, in order.
        headers: all their headers, in order.
        count: how many events it gets.
    """

    bodies: tuple[bytes, ...] | None = None
    headers: tuple[Mapping[str, str], ...] | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationTest:
    """A unit test of a configuration.

    Args:
        name: its name.
        agent: the agent's name.
        source: the source's name.
        events: the events as they come to the source.
        now: what the clock says.
        channels: what channels must get, by name.
        dropped: how many events must reach no channel; None for any number.
        dead: how many events an interceptor must not be able to pass; None for any number.
    """

    name: str
    agent: str
    source: str
    events: tuple[Event, ...]
    now: datetime = _NOW
    channels: Mapping[str, ExpectedChannel] = field(default_factory=dict)
    dropped: int | None = None
    dead: int | None = None


class TestReport(NamedTuple):
    """What became of a test: its name, and what was other than expected."""

    name: str
    failures: list[str]


TestReport.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a class of tests


def run_test(test: ConfigurationTest, paths: PathOrPaths, **options: Mapping[str, str] | None) -> TestReport:
    """Run one test.

    Args:
        test: the test.
        paths: the configuration's file or files.
        **options: ``system``, ``environment`` and ``mapped``, as `route` takes them.
    """
    try:
        routed = route(paths, test.agent, test.source, test.events, now=test.now, **options)
    except OptionError as e:
        return TestReport(test.name, [str(e)])
    failures: list[str] = []
    for name, expected in test.channels.items():
        if name not in routed:
            failures.append(f"{name} is not a channel of {test.source}, which has {', '.join(routed)}")
            continue
        events = routed[name]
        failures += _compared(f"{name}: bodies", expected.bodies, tuple(event.body for event in events))
        failures += _compared(f"{name}: headers", expected.headers, tuple(dict(event.headers) for event in events))
        failures += _compared(f"{name}: count", expected.count, len(events))
    failures += _compared("dropped", test.dropped, routed.dropped)
    failures += _compared("dead", test.dead, routed.dead)
    return TestReport(test.name, failures)


def _compared(what: str, expected: object, got: object) -> list[str]:
    return [] if expected is None or expected == got else [f"{what}: expected {expected!r}, got {got!r}"]


class _Fields:
    """The fields of one table of a file of tests; an unknown one, or one of another type, is an error."""

    def __init__(self, where: str, table: object, known: Sequence[str]) -> None:
        if not isinstance(table, dict):
            raise OptionError(f"{where} must be a table, not {shown(table)}")
        self._where, self._table = where, table
        for name in table:
            if name not in known:
                meant = nearest(name, known)
                hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
                raise OptionError(f"{where} has no {name}: {hint}")

    def get(self, name: str, *kinds: type, needed: bool = False) -> Any:
        """Return the value of a field; None if it is not there."""
        value = self._table.get(name)
        if value is None and not needed:
            return None
        if not isinstance(value, kinds) or isinstance(value, bool):
            what = " or ".join(f"a {_TYPES[kind]}" for kind in kinds)
            found = "" if value is None else f", not {shown(value)}"
            raise OptionError(f"{self._where} needs {name}: {what}{found}")
        return value

    def texts(self, name: str) -> Mapping[str, str]:
        """Return a table of texts."""
        table = self.get(name, dict) or {}
        if not all(isinstance(value, str) for value in table.values()):
            raise OptionError(f"{self._where}: the {name} must be texts, not {shown(table)}")
        return table


def read_tests(content: str) -> tuple[list[str], list[ConfigurationTest]]:
    """Return the configuration files that a file of tests names, and its tests.

    Args:
        content: the file's text.

    Raises:
        OptionError: it is not TOML, or something in it is wrong; the message says what.
    """
    try:
        table = tomllib.loads(content)
    except (ValueError, RecursionError) as e:  # the latter of arrays in arrays in arrays
        raise OptionError(f"it is not TOML: {e}") from e
    top = _Fields("the file", table, ("files", "test"))
    files = top.get("files", list) or []
    if not all(isinstance(file, str) for file in files):
        raise OptionError(f"the file needs files: names of files, not {shown(files)}")
    tests = top.get("test", list) or []
    if not tests:
        raise OptionError("it has no test: begin one with [[test]]")
    return files, [_test(f"test {i + 1}", test) for i, test in enumerate(tests)]


def _test(where: str, table: object) -> ConfigurationTest:
    known = ("name", "agent", "source", "events", "now", "channels", "dropped", "dead")
    fields = _Fields(where, table, known)
    name = fields.get("name", str, needed=True)
    fields = _Fields(f"the test {name!r}", table, known)
    now = fields.get("now", datetime, int)
    channels = fields.get("channels", dict) or {}
    return ConfigurationTest(
        name=name,
        agent=fields.get("agent", str, needed=True),
        source=fields.get("source", str, needed=True),
        events=tuple(_event(f"an event of {name!r}", event) for event in fields.get("events", list, needed=True)),
        now=_NOW if now is None else _moment(f"the test {name!r}", now),
        channels={channel: _channel(f"{channel} of {name!r}", expected) for channel, expected in channels.items()},
        dropped=fields.get("dropped", int),
        dead=fields.get("dead", int),
    )


def _moment(where: str, now: datetime | int) -> datetime:
    """Return what the clock says: a time, which is in UTC if it has no zone, or milliseconds since 1970."""
    if isinstance(now, datetime):
        return now if now.tzinfo else now.replace(tzinfo=UTC)
    try:
        return datetime.fromtimestamp(now / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise OptionError(f"{where}: now is {shown(now)}, and not milliseconds since 1970") from None


def _event(where: str, table: object) -> Event:
    fields = _Fields(where, table, ("body", "headers"))
    return Event((fields.get("body", str) or "").encode(), dict(fields.texts("headers")))


def _channel(where: str, table: object) -> ExpectedChannel:
    fields = _Fields(where, table, ("bodies", "headers", "count"))
    bodies, headers = fields.get("bodies", list), fields.get("headers", list)
    if not all(isinstance(body, str) for body in bodies or ()) or not all(isinstance(h, dict) for h in headers or ()):
        raise OptionError(f"{where}: bodies must be texts, and headers tables")
    return ExpectedChannel(
        bodies=None if bodies is None else tuple(body.encode() for body in bodies),
        headers=None if headers is None else tuple(headers),
        count=fields.get("count", int),
    )


def run_file(
    path: str | os.PathLike[str],
    files: Iterable[str] = (),
    *,
    name: str | None = None,
    **options: Mapping[str, str] | None,
) -> list[TestReport]:
    """Run the tests of a file.

    Args:
        path: the file.
        files: the configuration's files, instead of those that the file names.
        name: the agent whose tests are run; all by default.
        **options: ``system``, ``environment`` and ``mapped``, as `route` takes them.

    Raises:
        OptionError: the file can't be understood, or names no configuration; the message has its path.
        OSError: a file can't be read.
    """
    try:
        named, tests = read_tests(_text(path))
        paths = list(files) or [os.path.join(os.path.dirname(path), name) for name in named]
        if not paths:
            raise OptionError('it names no configuration: write files = ["flume.conf"]')
    except OptionError as e:
        raise OptionError(f"{os.fspath(path)}: {e}") from e
    return [run_test(test, paths, **options) for test in tests if name in (None, test.agent)]


def _text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file of tests.

    Raises:
        OptionError: it is too large for one, or not UTF-8, as all TOML is.
        OSError: it can't be read.
    """
    with naming(path), open(path, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OptionError(f"it has more than {_MOST_BYTES >> 20} MiB, as no file of tests has")
    try:
        return content.decode()
    except UnicodeDecodeError as e:
        raise OptionError(f"it is not TOML: its byte {e.start} is not UTF-8") from e
