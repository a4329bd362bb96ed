"""One Spark session for the Spark tests, with tasks in this virtual environment's Python."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.option_names import name_as_in_files
from tests.support.spark.sessions import local_files

_LOOKUPS = 3


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for _ in range(_LOOKUPS):
        session = made_session()
        if finds_the_source(session):
            break
        session.stop()  # the next one looks again
    yield session
    session.stop()


def made_session() -> Any:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("spillable tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.streaming.checkpointFileManagerClass", local_files())
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


@pytest.fixture(autouse=True)
def session_is_active(request: pytest.FixtureRequest) -> None:
    """Make the session the one of this thread in the JVM: a new connection from Python to it is a new thread there.

    Without one Spark finds no Python source to write to.
    """
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        session._get_j_spark_session_module(session._jvm).setActiveSession(session._jsparkSession)


def finds_the_source(session: Any) -> bool:
    """Tell whether a session has found the source: its one look starts a Python, which has ten seconds to answer."""
    return bool(session._jsparkSession.sessionState().dataSourceManager().dataSourceExists("spillable"))


@pytest.fixture(autouse=True)
def options_have_their_names() -> None:
    """Let messages name options as in a process that Spark runs: tests call what is behind its doors, too."""
    name_as_in_files()


@pytest.fixture(autouse=True)
def no_source_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop the sources that a test used and did not stop: each has its channel open, and a thread that closes it."""
    from spillable_stream.spark.source.group_lease import GroupLease

    holds: list[GroupLease] = []
    real = GroupLease.channel

    def channel(hold: GroupLease) -> ss.Channel:
        holds.append(hold)
        return real(hold)

    monkeypatch.setattr(GroupLease, "channel", channel)
    yield
    for hold in holds:
        with contextlib.suppress(ss.SpillableError):
            hold.close()


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Put bodies into a channel as one transaction for each call, and return the channel's path."""

    def put(name: str, *bodies: bytes) -> Path:
        with (
            ss.Channel(tmp_path / name, minimum_required_space=0) as channel,
            channel.put_transaction() as tx,
        ):
            tx.put_many(ss.Event(b, {"length": str(len(b))}) for b in bodies)
        return tmp_path / name

    return put


@pytest.fixture
def numbered() -> Callable[[int, int], list[bytes]]:
    return lambda first, count: [b"%06d" % i for i in range(first, first + count)]


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        yield channel
