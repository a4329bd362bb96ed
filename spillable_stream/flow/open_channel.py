"""Opening the channels of a configuration, but never one in a directory of Flume's own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from spillable_stream.channel.several_channels import WantedChannel
from spillable_stream.errors import NotAChannelError
from spillable_stream.flow.configuration.channels import ChannelArguments, channel_arguments, user_directories
from spillable_stream.flow.configuration.model import ComponentConfig

__all__ = ["arguments_on_host", "configured_channels", "directories_of", "flume_file", "wanted_channels"]

# Of Flume's data and checkpoint directories. Our own logs have six digits at least, and no .meta beside them.
_FLUME_FILE = re.compile(
    r"log-\d+\.meta(\.(tmp|old))?|log-[1-9]\d{0,4}|in_use\.lock|checkpoint\.meta|checkpoint\.snappy"
    r"|inflight(puts|takes)|queueset"
)


def flume_file(directory: str) -> str:
    """Return a file of Flume's file channel in a directory; an empty text if there is none."""
    try:
        names: Iterable[str] = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return next((name for name in sorted(names) if _FLUME_FILE.fullmatch(name)), "")


def configured_channels(
    agent: str, configs: Sequence[ComponentConfig], system: Mapping[str, str]
) -> list[WantedChannel]:
    """Return channels of an agent as `wanted_channels` does, in the places that they have on this host.

    Args:
        agent: the agent's name.
        configs: the channels.
        system: the options of the command line (``-D``).

    Raises what `wanted_channels` raises.
    """
    return wanted_channels([arguments_on_host(agent, config, system) for config in configs])


def arguments_on_host(
    agent: str, config: ComponentConfig, system: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> ChannelArguments:
    """Return what opens a channel of a configuration, in the place that it has on this host.

    Args:
        agent: the agent's name.
        config: the channel.
        system: the options of the command line (``-D``).
        environment: the environment; the process's own by default.
    """
    user = user_directories(system, os.environ if environment is None else environment)
    return channel_arguments(agent, config, user.data, user.home)


def wanted_channels(arguments: Sequence[ChannelArguments]) -> list[WantedChannel]:
    """Return the channels of a configuration as what `open_channels` opens together.

    Args:
        arguments: what `channel_arguments` returned of each.

    Raises:
        NotAChannelError: a directory has files of Flume's own file channel; nothing was touched.
    """
    for directory in (directory for one in arguments for directory in directories_of(one)):
        found = flume_file(directory)
        if found:
            raise NotAChannelError(
                f"{directory} holds a channel of Flume's ({found}), which is not touched: let Flume's agent empty it "
                "and stop, then move its files away, or give the channel another directory"
            )
    return [WantedChannel(one.path, one.options) for one in arguments]


def directories_of(arguments: ChannelArguments) -> list[str]:
    """Return the directories of a channel; none for one in an object store."""
    if "://" in arguments.path:
        return []
    data = arguments.options.get("data_dirs") or []
    assert isinstance(data, list)
    backup = arguments.options.get("backup_checkpoint_dir")
    return [arguments.path, *data, *([str(backup)] if backup else [])]
