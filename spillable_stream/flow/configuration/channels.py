"""Channels of a file as channels of ours: the arguments of `spillable_stream.Channel`."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from spillable_stream.arguments import path_text
from spillable_stream.channel.open_arguments import OpenArguments
from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.channel_options import DIRECTORIES, OWN_OPTIONS
from spillable_stream.flow.configuration.components import Refusal
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.registry import find_type
from spillable_stream.flow.configuration.tree import RawComponent
from spillable_stream.objects.location import channel_path
from spillable_stream.option_names import keyword_of
from spillable_stream.option_types import ChannelKeywords

__all__ = [
    "ChannelArguments",
    "UserDirectories",
    "capacities",
    "channel_arguments",
    "check_channel",
    "data_directory",
    "directories",
    "given_directories",
    "normal_place",
    "transaction_capacity",
    "user_directories",
]

_LEAST_BYTE_CAPACITY = 1 << 20
_SAME_AS_OURS = ("checkpointInterval", "maxFileSize", "checkpointOnClose", "keepAlive")
_Value = TypeVar("_Value", int, str)


class ChannelArguments(NamedTuple):
    """What `spillable_stream.Channel` gets: ``Channel(arguments.path, **arguments.options)``."""

    path: str
    options: ChannelKeywords


class Capacities(NamedTuple):
    """How many events a channel holds in memory and on disk."""

    memory: int
    overflow: int


def data_directory(system: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return where channels are that have no directory of their own: ``-Dspillable.data.dir``, or the user's."""
    home = environment.get("HOME", "~")
    below = environment.get("XDG_DATA_HOME") or f"{home}/.local/share"
    return system.get("spillable.data.dir") or f"{below}/spillable-stream"


def channel_arguments(agent: str, channel: ComponentConfig, data_directory: str, home: str = "~") -> ChannelArguments:
    """Return what opens a channel of a file.

    ``memory`` has no disk tier but for a clean close, ``file`` no memory tier, and ``SPILLABLEMEMORY`` both. The
    directory is the property ``path``, or ``checkpointDir``, or one of the agent's and channel's own.

    Args:
        agent: the agent's name.
        channel: the channel.
        data_directory: where channels without a directory are.
        home: the user's home, for ``~`` in a path.
    """
    get = _Getter(channel)
    path, data_dirs, backup = directories(agent, channel, data_directory, home)
    memory, overflow = capacities(channel)
    options: ChannelKeywords = {"transaction_capacity": get("transactionCapacity", 0)}
    if "://" in path:
        options["overflow_capacity"] = overflow
    else:
        options |= {"memory_capacity": memory, "overflow_capacity": overflow}
        if data_dirs:
            options["data_dirs"] = data_dirs
        if backup:
            options["backup_checkpoint_dir"] = backup
        if get("byteCapacity", 0):
            options["byte_capacity"] = max(get("byteCapacity", 0), _LEAST_BYTE_CAPACITY)
        if channel.keywords.get("minimum_required_space") is not None:
            options["minimum_required_space"] = get("minimumRequiredSpace", 0)
    if channel.type == "SPILLABLEMEMORY":
        options["overflow_timeout"] = get("overflowTimeout", 0)
        options["overflow_deactivation_threshold"] = get("overflowDeactivationThreshold", 0)
        options["avg_event_size"] = get("avgEventSize", 0)
    else:
        options["keep_alive"] = get("keep-alive", 0)
    if memory and "://" not in path:
        options["byte_capacity_buffer_percentage"] = get("byteCapacityBufferPercentage", 0)
    options.update(_given_options(channel, home))  # type: ignore[typeddict-item]
    return ChannelArguments(path, options)


def _given_options(channel: ComponentConfig, home: str) -> dict[str, object]:
    """Return the options of ours that a file gives to a channel, and those of Flume's that are the same in ours."""
    names = [*_SAME_AS_OURS, *(option.name for option in OWN_OPTIONS)]
    given = {name: channel.keywords.get(keyword_of(name)) for name in names}
    return {
        keyword_of(name): _expanded(value, home) if name in DIRECTORIES and isinstance(value, str) else value
        for name, value in given.items()
        if value is not None
    }


class _Getter:
    """Looks up a channel's properties by name, with their defaults."""

    def __init__(self, channel: ComponentConfig) -> None:
        known = find_type(Kind.CHANNEL, channel.type)
        assert known is not None, channel.type
        self._known = known
        self._keywords = channel.keywords

    def __call__(self, name: str, absent: _Value) -> _Value:
        """Return a value; ``absent``, which says its type, where the channel's type has no such property."""
        known = self._known.find(name)
        if known is None:
            return absent
        value = self._keywords.get(self._known.keyword(known), known.default)
        return absent if value is None else value  # type: ignore[return-value]


def directories(
    agent: str, channel: ComponentConfig, data_directory: str, home: str = "~"
) -> tuple[str, list[str], str]:
    """Return a channel's own directory, its data directories, and where copies of checkpoints go ("" for nowhere)."""
    get = _Getter(channel)
    path = get("path", "") or get("checkpointDir", "") or f"{data_directory}/{agent}/{channel.name}"
    given = channel.keywords.get("data_dirs", ())
    assert isinstance(given, tuple)
    backup = get("backupCheckpointDir", "") if channel.keywords.get("use_dual_checkpoints") else ""
    return _expanded(path, home), [_expanded(d, home) for d in given], _expanded(backup, home)


def given_directories(channel: ComponentConfig) -> list[tuple[str, str]]:
    """Return the directories that a file gives to a channel, each once with the name of the property."""
    get = _Getter(channel)
    data = channel.keywords.get("data_dirs", ())
    assert isinstance(data, tuple)
    place = "path" if get("path", "") else "checkpointDir"
    given = [(place, get(place, "")), *(("dataDirs", directory) for directory in data)]
    if channel.keywords.get("use_dual_checkpoints"):
        given.append(("backupCheckpointDir", get("backupCheckpointDir", "")))
    return [(name, normal_place(directory)) for name, directory in given if directory]


class UserDirectories(NamedTuple):
    """Where the user's files are, as `user_directories` returns it."""

    data: str
    home: str

    def place_of(self, agent: str, channel: ComponentConfig) -> str:
        """Return where a channel of an agent is, in the one spelling that `place` gives."""
        return normal_place(directories(agent, channel, self.data, self.home)[0])

    def place(self, path: str) -> str:
        """Return where a path or an address of the files is."""
        return normal_place(_expanded(path, self.home))


def user_directories(system: Mapping[str, str], environment: Mapping[str, str]) -> UserDirectories:
    """Return where the user's files are, by the options ``-D`` and the environment."""
    return UserDirectories(data_directory(system, environment), environment.get("HOME") or posixpath.expanduser("~"))


def normal_place(path: str) -> str:
    """Return the one spelling of a directory or an address, so that two that are one are found."""
    scheme, separator, rest = path.partition("://")
    return f"{scheme}://{posixpath.normpath(rest)}" if separator else posixpath.abspath(path)


def _expanded(path: str, home: str) -> str:
    """Return a path with the user's home for ``~``; that of another user, ``~bob``, is the system's to know."""
    return home + path[1:] if path == "~" or path.startswith("~/") else posixpath.expanduser(path)


def capacities(channel: ComponentConfig) -> Capacities:
    """Return how many events a channel holds."""
    get = _Getter(channel)
    if channel.type == "memory":
        return Capacities(get("capacity", 0), 0)
    if channel.type == "file":
        return Capacities(0, get("capacity", 0))
    memory, overflow = get("memoryCapacity", 0), get("overflowCapacity", 0)
    return Capacities(memory, overflow) if memory or overflow else Capacities(0, 100_000_000)


def transaction_capacity(channel: ComponentConfig) -> int:
    """Return the most events of a transaction of a channel."""
    return _Getter(channel)("transactionCapacity", 0)


def check_channel(raw: RawComponent, channel: ComponentConfig, findings: Findings) -> None:
    """Refuse a channel whose properties contradict each other.

    Raises:
        Refusal: they do.
    """

    def refuse(name: str, text: str, advice: str) -> Refusal:
        at = raw.entries.get(name, raw.first)
        return Refusal(findings.add("bad-value", at, raw.path, f"{text}, so it does not run: {advice}"))

    _check_place(raw, channel, findings)
    for name, directory in given_directories(channel):
        try:
            path_text(name, directory)
        except OptionError as e:
            raise refuse(name, str(e), "give it another directory") from None
    get = _Getter(channel)
    memory, overflow = capacities(channel)
    most = get("transactionCapacity", 0)
    if channel.type != "SPILLABLEMEMORY" and most > memory + overflow:
        raise refuse(
            "transactionCapacity",
            f"transactionCapacity, {most}, must not exceed capacity, {memory + overflow}",
            f"write {raw.path}.capacity = {most}",
        )
    if memory and "://" in get("path", ""):
        raise refuse("path", "an object store has no memory in front of it", "use type file")
    if channel.keywords.get("use_dual_checkpoints"):
        backup = get("backupCheckpointDir", "")
        if not backup:
            raise refuse("useDualCheckpoints", "useDualCheckpoints needs backupCheckpointDir", "give it one")
        if backup == get("checkpointDir", ""):
            raise refuse(
                "backupCheckpointDir", "backupCheckpointDir must not be checkpointDir", "give it another directory"
            )


def _check_place(raw: RawComponent, channel: ComponentConfig, findings: Findings) -> None:
    """Refuse an option of ours that a channel at such a place can't have; raises Refusal."""
    given, options = _Getter(channel)("path", ""), _given_options(channel, "/home")  # whoever's: nothing is opened
    try:
        path = channel_path(given if "://" in given else "a directory")
        OpenArguments.of(path, options, None, readonly=False).check_place()
    except OptionError as e:
        at = next((entry for name, entry in raw.entries.items() if keyword_of(name) == e.option), raw.first)
        raise Refusal(findings.add("bad-value", at, raw.path, f"it does not run: {e}")) from None
