"""Flume's rules of what runs: a bad component is dropped, and the rest of its agent runs.

Channels come first, then the sources and sinks that use them, then the groups of sinks, and last the channels that
nothing uses are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import fields, replace
from typing import Any, TypeVar

from spillable_stream.flow.configuration.channel_times import check_times
from spillable_stream.flow.configuration.channels import (
    UserDirectories,
    check_channel,
    given_directories,
    transaction_capacity,
)
from spillable_stream.flow.configuration.components import Classes, Refusal
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.groups import configure_groups
from spillable_stream.flow.configuration.model import (
    AgentConfig,
    ComponentConfig,
    DroppedComponent,
    SinkConfig,
    SourceConfig,
)
from spillable_stream.flow.configuration.nested import configure_whole
from spillable_stream.flow.configuration.options import Kind, word_list
from spillable_stream.flow.configuration.registry import find_type, nearest
from spillable_stream.flow.configuration.selection import configure_selector
from spillable_stream.flow.configuration.tree import LISTS, RawAgent, RawComponent
from spillable_stream.names import NAME, is_name
from spillable_stream.shown_value import shown

__all__ = ["validate"]

_MOST_COMPARED = 100  # agents: a file that is none has another one in each of its lines
_Config = TypeVar("_Config")


def validate(
    raw: RawAgent, findings: Findings, classes: Classes, names: Collection[str], user: UserDirectories
) -> AgentConfig:
    """Return what runs of an agent.

    Args:
        raw: the agent.
        findings: gets what is wrong.
        classes: finds classes, and tries components.
        names: the names of the files' agents.
        user: where the user's files are.
    """
    return _Validation(raw, findings, classes, user).run(names)


class _Validation:
    """Validates one agent."""

    def __init__(self, raw: RawAgent, findings: Findings, classes: Classes, user: UserDirectories) -> None:
        self._raw = raw
        self._findings = findings
        self._classes = classes
        self._channels: dict[str, ComponentConfig] = {}
        self._user = user
        self._directory_of: dict[str, str] = {}
        self._moves: dict[str, set[str]] = {}  # from which place to which ones sinks of type channel move events
        self._dropped: list[DroppedComponent] = []

    def run(self, names: Collection[str]) -> AgentConfig:
        """Return what runs."""
        for channel in self._each("channels", self._channel):
            self._channels[channel.name] = channel
        sources = self._each("sources", self._source)
        sinks = self._each("sinks", self._sink)
        groups, refused = configure_groups(self._raw, [s.name for s in sinks], self._findings, self._classes)
        self._dropped += refused
        gone = {d.name for d in refused if d.kind is Kind.SINK}
        sinks = [sink for sink in sinks if sink.name not in gone]
        used = {name for s in sources for name in (*s.channels, s.dead_letter)}
        used |= {name for s in sinks for name in (s.channel, s.dead_letter)}
        agent = AgentConfig(
            name=self._raw.name,
            sources=tuple(sources),
            channels=tuple(c for name, c in self._channels.items() if name in used),
            sinks=tuple(sinks),
            sink_groups=tuple(groups),
        )
        self._drop_unused(used, whole=agent.valid)
        self._about_the_whole(agent, names)
        return replace(agent, dropped=tuple(self._dropped))

    def _each(self, of: str, make: Callable[[RawComponent], _Config]) -> list[_Config]:
        """Return the components of a list that run."""
        made = []
        for component in self._described(of):
            try:
                made.append(make(component))
            except Refusal as refusal:
                self._drop(component, refusal.reason)
        return made

    def _described(self, of: str) -> list[RawComponent]:
        """Return the components that are both listed and described, and say which are only one of both."""
        described = self._raw.components[of]
        listed = self._raw.names(of)
        at = self._raw.lists.get(of)
        if at is not None:
            self._about_the_list(of, listed)
        of_commas = {part for name in listed for part in name.split(",")}
        for name, component in described.items():
            if name not in listed and name not in of_commas:
                where = f"{self._raw.name}.{of}"
                # Without a type it is rather a slip of the pen, such as ri for r1, than a component.
                meant = "" if "type" in component.entries else nearest(name, listed, 0.5)
                advice = f"did you mean {meant}?" if meant else f"add {name} to {where}, or take its lines out"
                text = f"{where} does not list it, so it does not run: {advice}"
                self._findings.add("not-listed", component.first, component.path, text)
        return [described[name] for name in listed if name in described]

    def _about_the_list(self, of: str, listed: Collection[str]) -> None:
        at = self._raw.lists[of]
        described = self._raw.components[of]
        path = f"{self._raw.name}.{of}"
        if "," in at.value and any("," in name and name not in described for name in listed):
            meant = " ".join(part for name in listed for part in name.split(",") if part)
            self._findings.add(
                "list-commas", at, self._raw.name, f"names are separated by blanks: write {path} = {meant}"
            )
        if len(word_list(at.value)) > len(listed):
            self._findings.add("listed-twice", at, self._raw.name, f"{path} has a name twice: take one out")
        unlisted = [name for name in described if name not in listed]
        for name in listed:
            if name in described:
                continue
            if "," not in name:
                meant = nearest(name, unlisted)
                hint = f": did you mean {meant}?" if meant else f": describe it, {path}.{name}.type = …, or take it out"
                text = f"{path} lists it, and it has no property, so it does not run{hint}"
                self._findings.add("not-described", at, f"{path}.{name}", text)
            self._dropped.append(DroppedComponent(LISTS[of], name, "", (), "it has no property"))

    def _channel(self, raw: RawComponent) -> ComponentConfig:
        channel = configure_whole(raw, self._findings, self._classes)
        check_channel(raw, channel, self._findings)
        check_times(raw, channel, self._findings)
        for name, directory in given_directories(channel):
            if directory in self._directory_of:
                other = self._directory_of[directory]
                text = f"{directory} is a directory of the channel {other} already, so it does not run: give it another"
                raise Refusal(self._findings.add("shared-directory", raw.entries[name], raw.path, text))
        self._directory_of |= {directory: channel.name for _, directory in given_directories(channel)}
        return channel

    def _source(self, raw: RawComponent) -> SourceConfig:
        component = configure_whole(raw, self._findings, self._classes)
        self._check_name(raw, component)
        interceptors = self._interceptors(raw)
        channels = self._channels_of(raw)
        selector = self._selector(raw, channels)
        for name in channels:
            self._check_batch(raw, component, name)
        return SourceConfig(
            **_fields(component),
            channels=tuple(channels),
            selector=selector,
            interceptors=interceptors,
            dead_letter=self._dead_letter(raw, channels),
        )

    def _check_name(self, raw: RawComponent, component: ComponentConfig) -> None:
        """Refuse a source whose channels can't remember its batches by its name."""
        known, name = find_type(raw.kind, component.type), f"{self._raw.name}.{raw.name}"
        if known is not None and known.numbered and not is_name(name):
            text = f"its channels remember it as {shown(name)}, and such a name has {NAME}; it does not run: rename it"
            raise Refusal(self._findings.add("bad-value", raw.first, raw.path, text))

    def _interceptors(self, source: RawComponent) -> tuple[ComponentConfig, ...]:
        names = word_list(source.get("interceptors"))
        described = {
            key.split(".")[1]: e for key, e in reversed(source.entries.items()) if key.startswith("interceptors.")
        }
        begun = {name.partition(".")[0] for name in names}  # Flume's may have dots
        for name, entry in described.items():
            if name not in begun:
                path = f"{source.path}.interceptors.{name}"
                text = f"{source.path}.interceptors does not list it, so it does not run: add {name}"
                self._findings.add("not-listed", entry, path, text)
        return tuple(self._interceptor(source, name) for name in names)

    def _selector(self, source: RawComponent, channels: list[str]) -> ComponentConfig:
        if "selector" in source.entries:
            text = f"nothing reads selector: write {source.path}.selector.type = {source.get('selector')}"
            self._findings.add("unknown-property", source.entries["selector"], source.path, text)
        try:
            return configure_selector(source, channels, self._findings, self._classes)
        except Refusal as refusal:
            raise self._part_fails(source, "selector", refusal) from refusal

    def _part_fails(self, source: RawComponent, part: str, refusal: Refusal) -> Refusal:
        text = f"its {part} can't work ({refusal.seen_from(source.first.file)} says why), so the source does not run"
        finding = self._findings.add("part-fails", source.first, source.path, text)
        return Refusal(finding, f"its {part} can't work: {refusal.reason}")

    def _interceptor(self, source: RawComponent, name: str) -> ComponentConfig:
        raw = source.below(f"interceptors.{name}", Kind.INTERCEPTOR, name)
        try:
            if not raw.entries:
                text = f"{source.path}.interceptors lists it, and it has no property: describe it, or take it out"
                raise Refusal(self._findings.add("not-described", source.entries["interceptors"], raw.path, text))
            return configure_whole(raw, self._findings, self._classes)
        except Refusal as refusal:
            raise self._part_fails(source, f"interceptor {name}", refusal) from refusal

    def _channels_of(self, raw: RawComponent) -> list[str]:
        """Return the names of the channels of a source that run, as they are written."""
        names = list(dict.fromkeys(word_list(raw.get("channels"))))
        running = [name for name in names if name in self._channels]
        if not running:
            at = raw.entries.get("channels", raw.first)
            what = f"none of its channels runs ({', '.join(names)})" if names else "it has no channels"
            hint = self._hint(names) if names else f": write {raw.path}.channels = …"
            if not names and raw.get("channel"):
                hint = ": a source has channels, and a sink has a channel"
            text = f"{what}, so it does not run{hint}"
            raise Refusal(self._findings.add("no-channel", at, raw.path, text))
        for name in names:
            if name not in self._channels:
                text = f"its channel {name} does not run; it runs without{self._hint([name])}"
                self._findings.add("invalid-channel", raw.entries["channels"], raw.path, text)
        return running

    def _sink(self, raw: RawComponent) -> SinkConfig:
        component = configure_whole(raw, self._findings, self._classes)
        name = raw.get("channel")
        if name not in self._channels:
            at = raw.entries.get("channel", raw.first)
            what = f"its channel {name} does not run" if name else "it has no channel"
            hint = self._hint([name]) if name else f": write {raw.path}.channel = …"
            if len(word_list(name)) > 1:
                hint = ": a sink takes from one channel"
            if not name and raw.get("channels"):
                hint = ": a sink has a channel, and a source has channels"
            raise Refusal(self._findings.add("no-channel", at, raw.path, f"{what}, so it does not run{hint}"))
        self._check_batch(raw, component, name)
        if component.type == "channel":
            self._check_loop(raw, component, name)
        return SinkConfig(**_fields(component), channel=name, dead_letter=self._dead_letter(raw, [name]))

    def _check_loop(self, raw: RawComponent, sink: ComponentConfig, name: str) -> None:
        """Refuse a sink that moves events to where it, or sinks behind it, take them from."""
        place = self._user.place_of(self._raw.name, self._channels[name])
        target = self._user.place(str(sink.keywords["path"]))
        reached = {target}
        new = [target]
        while new:
            behind = self._moves.get(new.pop(), set()) - reached
            reached |= behind
            new += behind
        if place in reached:
            how = "it puts into the channel that it takes from" if place == target else "other sinks bring them back"
            text = f"its events come back into its channel {name} forever ({how}), so it does not run: change its path"
            raise Refusal(self._findings.add("channel-loop", raw.entries["path"], raw.path, text))
        self._moves.setdefault(place, set()).add(target)

    def _hint(self, names: list[str]) -> str:
        meant = [nearest(name, self._channels) for name in names]
        return f": did you mean {' '.join(meant)}?" if all(meant) else ""

    def _dead_letter(self, raw: RawComponent, own: Iterable[str]) -> str:
        name = raw.get("deadLetter")
        if name in own:
            text = f"dead letters need a channel of their own, and {name} has other events; it runs without"
            self._findings.add("invalid-channel", raw.entries["deadLetter"], raw.path, text)
            return ""
        if name and name not in self._channels:
            text = f"the channel for its dead letters, {name}, does not run; it runs without{self._hint([name])}"
            self._findings.add("invalid-channel", raw.entries["deadLetter"], raw.path, text)
            return ""
        return name

    def _check_batch(self, raw: RawComponent, component: ComponentConfig, name: str) -> None:
        """Refuse a component whose batches do not fit a transaction of its channel."""
        known = find_type(raw.kind, component.type)
        if known is None or not known.batch_property:
            return
        known_batch = known.plain(known.batch_property)
        size = component.keywords.get(known.keyword(known_batch), known_batch.default)
        capacity = transaction_capacity(self._channels[name])
        if isinstance(size, int) and size > capacity:
            at = raw.entries.get(known.batch_property, raw.first)
            text = (
                f"its {known.batch_property}, {size}, exceeds the transactionCapacity of {name}, {capacity}, "
                f"so it does not run: write {self._raw.name}.channels.{name}.transactionCapacity = {size}"
            )
            raise Refusal(self._findings.add("batch-too-large", at, raw.path, text))

    def _drop(self, raw: RawComponent, reason: str) -> None:
        channels = (raw.get("channels") or raw.get("channel")) if raw.kind is not Kind.CHANNEL else ""
        names = tuple(word_list(channels))
        self._dropped.append(DroppedComponent(raw.kind, raw.name, raw.get("type"), names, reason))

    def _drop_unused(self, used: set[str], *, whole: bool) -> None:
        for name, channel in self._channels.items():
            if name not in used:
                text = "no source and no sink that runs uses it, so it is not opened"
                raw = self._raw.components["channels"][name]
                if whole:
                    self._findings.add("unused-channel", raw.first, raw.path, text)
                self._dropped.append(DroppedComponent(Kind.CHANNEL, name, channel.type, (), text))

    def _about_the_whole(self, agent: AgentConfig, names: Collection[str]) -> None:
        """Say what is wrong with the agent as a whole."""
        name = agent.name
        if not agent.valid:
            at = self._raw.lists.get("channels") or self._raw.first
            if not self._raw.lists:
                meant = len(names) <= _MOST_COMPARED and nearest(name, [other for other in names if other != name])
                text = "nothing of it runs, since it lists no component" + (f": did you mean {meant}?" if meant else "")
            elif "channels" not in self._raw.lists:
                text = f"nothing of it runs, since it lists no channel: write {name}.channels = …"
            elif not self._channels:
                text = "nothing of it runs, since none of its channels does"
            else:
                text = "nothing of it runs: it has neither a source nor a sink that does"
            self._findings.add("invalid-agent", at, name, text)
        elif not agent.sources:
            text = "no source runs: something else must put into its channels"
            self._findings.add("no-sources", self._raw.lists.get("sources") or self._raw.first, name, text)
        elif not agent.sinks:
            text = "no sink runs: something else must take from its channels, a Spark query for one"
            self._findings.add("no-sinks", self._raw.lists.get("sinks") or self._raw.first, name, text)


def _fields(component: ComponentConfig) -> dict[str, Any]:
    return {f.name: getattr(component, f.name) for f in fields(component)}
