from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from spillable_stream import Event
from spillable_stream.errors import NotAChannelError, OptionError
from spillable_stream.flow import assembly
from spillable_stream.flow.assembly import assemble, build_channels, built_sink, built_source, run_sinks, run_source
from spillable_stream.flow.changes import Changes, sink_units
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.flow.interceptors.base import EventInterceptor
from spillable_stream.flow.loading import load
from spillable_stream.flow.sink_processors import Failover
from spillable_stream.flow.sinks.null import Null
from spillable_stream.flow.wired import Wired

TEXT = """
a.sources = r s
a.channels = c dead
a.sinks = k l p x
a.sinkgroups = g
a.sinkgroups.g.sinks = k l
a.sinkgroups.g.processor.type = failover
a.sources.r.type = seq
a.sources.r.channels = c
a.sources.r.deadLetter = dead
a.sources.s.type = spooldir
a.sources.s.spoolDir = /tmp
a.sources.s.channels = c
a.channels.c.type = memory
a.channels.dead.type = memory
a.sinks.k.type = null
a.sinks.k.channel = c
a.sinks.k.deadLetter = dead
a.sinks.l.type = null
a.sinks.l.channel = c
a.sinks.p.type = org.apache.spark.streaming.flume.sink.SparkSink
a.sinks.p.channel = dead
a.sinks.x.type = queue.Queue
a.sinks.x.channel = c
"""


def test_components_are_built_with_their_channels(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(TEXT)
    config = load(tmp_path / "f").agents["a"]
    system = {"spillable.data.dir": str(tmp_path), "x": "y"}
    channels = build_channels("a", config.channels, system)
    try:
        r, s = (run_source("a", source, built_source(source), channels) for source in config.sources)
        assert (r.name, r.processor.producer, [*r.processor.channels]) == ("a.r", None, ["c", "deadLetter"])  # type: ignore[attr-defined]
        assert s.processor.producer == "a.s"  # type: ignore[attr-defined]
        units = sink_units(config)
        in_group = {sink.name: built_sink(sink) for sink in units["g"].sinks}
        group = run_sinks("a", "g", units["g"], in_group, channels, system)
        assert isinstance(group._processor, Failover)
        k, other = group.sinks
        assert isinstance(k, Null) and (k.name, k.in_group, k.system) == ("a.k", True, system)
        assert k.dead_letter is channels["dead"].channel and other.dead_letter is None
    finally:
        for opened in channels.values():
            opened.channel.close()


def test_a_class_that_is_neither_source_nor_sink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(TEXT.replace("r.type = seq", "r.type = queue.Queue"))
    config = load(tmp_path / "f").agents["a"]
    with pytest.raises(OptionError, match=r"queue\.Queue is not a source; derive it"):
        built_source(next(s for s in config.sources if s.name == "r"))
    with pytest.raises(OptionError, match=r"queue\.Queue is not a sink; derive it"):
        built_sink(next(s for s in config.sinks if s.name == "x"))


def test_no_channel_is_created_if_another_one_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(
        TEXT.replace("dead.type = memory", f"dead.type = file\na.channels.dead.path = {tmp_path}/f")
    )
    config = load(tmp_path / "f").agents["a"]
    with pytest.raises(NotAChannelError, match="it is a file"):
        build_channels("a", config.channels, {"spillable.data.dir": str(tmp_path)})
    assert [path.name for path in tmp_path.rglob("*")] == ["f"]


def test_a_dead_letter_names_the_source_that_put_it_aside_though_its_batches_have_no_numbers(tmp_path: Path) -> None:
    interceptor = f"a.sources.r.interceptors = i\na.sources.r.interceptors.i.type = {__name__}.Broken\n"
    (tmp_path / "f").write_text(TEXT + interceptor)
    config = load(tmp_path / "f").agents["a"]
    channels = build_channels("a", config.channels, {"spillable.data.dir": str(tmp_path)})
    try:
        source = next(s for s in config.sources if s.name == "r")
        run_source("a", source, built_source(source), channels).processor.process([Event(b"x")])  # type: ignore[attr-defined]
        with channels["dead"].channel.take_transaction() as transaction:
            letter = transaction.take()
        assert letter is not None
        assert letter.headers["deadletter.component"].startswith("a.r/")
        assert re.fullmatch(r"a\.r:[0-9a-f]{16}-0:0", letter.headers["deadletter.id"])
    finally:
        for opened in channels.values():
            opened.channel.close()


class Broken(EventInterceptor):
    """An interceptor that nothing passes."""

    def intercept(self, event: Event) -> Event:
        raise ValueError(event.body)


DELAYED = """
a.sources = r
a.channels = c
a.sinks = k
a.sources.r.type = seq
a.sources.r.totalEvents = 1
a.sources.r.channels = c
a.sinks.k.type = null
a.sinks.k.channel = c
a.channels.c.type = SPILLABLEMEMORY
a.channels.c.memoryCapacity = 100
a.channels.c.overflowCapacity = {}
"""


def assembled(directory: Path, text: str, before: Wired) -> Wired:
    """Return what an agent would run by a configuration in which everything has changed."""
    (directory / "f").write_text(text)
    config = load(directory / "f").agents["a"]
    found = Changes(channels=frozenset("c"), sources=frozenset("r"), sinks=frozenset("k"))
    return assemble("a", config, {"spillable.data.dir": str(directory)}, found, before)


def test_a_channel_that_gets_a_disk_tier_and_delays_in_one_file_takes_both(tmp_path: Path) -> None:
    with ExitStack() as stack:
        before = assembled(tmp_path, DELAYED.format(0), Wired())
        stack.callback(before.channels["c"].channel.close)
        after = assembled(tmp_path, DELAYED.format(1000) + "a.channels.c.deliverAfter = 1s\n", before)
        channel = after.channels["c"].channel
        stack.callback(channel.close)
        assert channel.options["overflow_capacity"] == 1000
        assert after.channels["c"].times == EventTimes(deliver_after=1.0)


@pytest.mark.parametrize(
    ("selector", "is_the_same"),
    [("replicating", True), ("load_balancing", False)],
)
def test_the_order_of_channels_makes_another_division_unless_all_of_them_get_all(
    tmp_path: Path, selector: str, is_the_same: bool
) -> None:
    found = set()
    for channels in ("c dead", "dead c"):
        text = TEXT.replace("a.sources.s.channels = c", f"a.sources.s.channels = {channels}")
        (tmp_path / "f").write_text(text + f"a.sources.s.selector.type = {selector}\n")
        found.add(assembly._division(load(tmp_path / "f").agents["a"].sources[1]))
    assert (len(found) == 1) == is_the_same


SPOOLED = """
a.channels = c
a.channels.c.type = file
a.channels.c.path = object+file://{dir}/store
a.channels.c.durability = local
a.channels.c.spool = {dir}/spool
a.channels.c.commitInterval = 1s
a.sources = r
a.sources.r.type = seq
a.sources.r.channels = c
a.sinks = k
a.sinks.k.type = null
a.sinks.k.channel = c
"""


def test_a_spool_of_what_runs_is_not_created_again_and_another_one_is(tmp_path: Path) -> None:
    """Its disk was away, and an agent that opened the channel again put to an empty one on another disk."""
    file = tmp_path / "f"

    def assembled(text: str, before: Wired) -> Wired:
        file.write_text(text.replace("{dir}", str(tmp_path)))
        return assemble("a", load(file).agents["a"], {}, Changes(frozenset(), frozenset(), frozenset("c")), before)

    with ExitStack() as stack:
        wired = assembled(SPOOLED, Wired())
        stack.callback(wired.channels["c"].channel.close)
        (tmp_path / "spool").rename(tmp_path / "away")
        with pytest.raises(
            NotAChannelError, match=f"was at {tmp_path}/spool, and nothing is there now: mount its disk"
        ):
            assembled(SPOOLED, wired)
        assert not (tmp_path / "spool").exists()
        (tmp_path / "away").rename(tmp_path / "spool")
        again = assembled(SPOOLED, wired)
        again.channels["c"].channel.close()
        other = assembled(SPOOLED.replace("/spool", "/other"), wired)
        other.channels["c"].channel.close()
        assert (tmp_path / "other").is_dir()
