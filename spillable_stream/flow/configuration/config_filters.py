"""Config filters: ``${f1['key']}`` in a value, answered by the environment or by a command.

What runs the command is given, so that nothing here does any input or output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spillable_stream.flow.configuration.properties import Entry, Problem

__all__ = ["ConfigFilter", "FilterError", "apply_filters"]


class FilterError(Exception):
    """A filter has no answer. The message says why."""


# Takes a command with the key as its last argument; returns the first line of its output, or raises FilterError.
Run = Callable[[list[str]], str]


@dataclass(frozen=True, slots=True)
class ConfigFilter:
    """A filter of an agent.

    Args:
        name: its name in the file.
        type: ``env``, or ``external``.
        command: what an external one runs.
    """

    name: str
    type: str
    command: str = ""

    def answer(self, key: str, environment: Mapping[str, str], run: Run) -> str:
        """Return what a key stands for.

        Raises:
            FilterError: there is no answer.
        """
        if self.type == "external":
            return run([*self.command.split(), key])
        if key not in environment:
            raise FilterError(f"the environment variable {key} is not set")
        return environment[key]


def apply_filters(
    entries: list[Entry], filters: list[ConfigFilter], environment: Mapping[str, str], run: Run
) -> tuple[list[Entry], list[Problem]]:
    """Return the entries of an agent with the references to its filters answered, and those without an answer.

    Each key is asked for once. A reference whose quotes do not match stays as it stands.

    Args:
        entries: what the files say about the agent.
        filters: its filters.
        environment: what filters of type ``env`` answer from.
        run: runs a command for filters of type ``external``.
    """
    if not filters:
        return entries, []
    by_name = {f.name: f for f in filters}
    names = "|".join(map(re.escape, by_name))
    reference = re.compile(rf"\$\{{({names})\[(['\"]?)([-_a-zA-Z0-9]+)\2\]\}}")
    answers: dict[tuple[str, str], str | FilterError] = {}
    problems: list[Problem] = []

    def ask(name: str, key: str) -> str | FilterError:
        if (name, key) not in answers:
            try:
                answers[name, key] = by_name[name].answer(key, environment, run)
            except FilterError as e:
                answers[name, key] = e
        return answers[name, key]

    def resolved(entry: Entry) -> Entry:
        def replace(found: re.Match[str]) -> str:
            answer = ask(found[1], found[3])
            if isinstance(answer, str):
                return answer
            problems.append(Problem("filter-failed", f"{found[0]} stays as it stands: {answer}", entry))
            return found[0]

        return entry._replace(value=reference.sub(replace, entry.value))

    return [resolved(entry) for entry in entries], problems
