"""Defaults of a new channel's options from the environment: ``SPILLABLE_MEMORY_CAPACITY`` is ``memoryCapacity``.

They apply when a channel is created, never to one that is there: its options are stored in it, and change only where
a program or ``spillable alter`` gives another value. Directories have no such default: each channel has its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from spillable_stream.errors import OptionError
from spillable_stream.log_records import log_of
from spillable_stream.option_names import nearest_name
from spillable_stream.options import CHANNEL, CREATION, OPTIONS, Option, parse_options

__all__ = ["environment_options", "variable_of"]

_log = log_of(__name__)

_PREFIX = "SPILLABLE_"

_DIRECTORIES = {"data_dirs", "checkpoint_dir", "backup_checkpoint_dir"}


def variable_of(keyword: str) -> str:
    """Return the variable that has the default of an option.

    Args:
        keyword: the option's name in snake_case.
    """
    return _PREFIX + keyword.upper()


def environment_options(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the options that variables of the environment give to a new channel, by keyword name.

    A variable whose name is almost that of an option's is logged: it has no effect.

    Args:
        environment: the variables; those of this process by default. Empty ones count as not set.

    Raises:
        OptionError: a value is out of range; names the variable.
    """
    variables = os.environ if environment is None else environment
    known = {variable_of(o.keyword): o for o in OPTIONS if _has_default(o)}
    found: dict[str, Any] = {}
    for variable, text in variables.items():
        option = known.get(variable)
        if option is None:
            _warn_of_slip(variable, known)
        if option is None or not text:
            continue
        try:
            found |= parse_options({option.name: text}, (CHANNEL, CREATION), where="a channel")
        except OptionError as e:
            raise OptionError(f"the variable {variable}: {e}", e.option) from e
    return found


def _warn_of_slip(variable: str, known: Mapping[str, Option]) -> None:
    if not variable.startswith(_PREFIX):
        return
    names = [name.removeprefix(_PREFIX) for name in known]  # the prefix would make all of them alike
    if near := nearest_name(variable.removeprefix(_PREFIX), names, cutoff=0.8):
        _log.warning("the variable %s is not an option's; the nearest is %s", variable, _PREFIX + near)


def _has_default(option: Option) -> bool:
    return bool({CHANNEL, CREATION} & set(option.scopes)) and option.keyword not in _DIRECTORIES
