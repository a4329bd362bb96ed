"""Answers to calls that are not understood, where typer does not say what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from spillable_stream.option_names import nearest_name

__all__ = ["UsageError", "VerbGroup", "channel_option_hint", "no_verb"]

UsageError: Any = typer.BadParameter.__base__
"""The error of a wrong call, for which typer has no public name."""


class VerbGroup(TyperGroup):
    """Verbs, one of which a call has to name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return a call's verb with its name and its arguments; raises a `UsageError` that says which there are."""
        try:
            return super().resolve_command(ctx, args)
        except UsageError as e:
            if args and args[0] not in self.commands and not args[0].startswith("-"):
                e.message = self._no_verb(args[0], ctx)
            raise

    def _no_verb(self, word: str, context: Any) -> str:
        verbs, name = self.list_commands(context), context.info_name
        if context.parent is None or _nearest(word, verbs):
            return no_verb([word], verbs)
        return f"'{name}' has no verb {word!r}: give one of {', '.join(verbs)}, as in 'spillable {name} {verbs[0]} …'"


def no_verb(words: Sequence[str], verbs: Collection[str]) -> str:
    """Return that there is no such verb, and which is meant, or where those that there are can be read.

    Args:
        words: the verb, behind the group of verbs that it was looked for in, if that was one.
        verbs: those that there are.
    """
    *outer, last = words
    if near := _nearest(last, verbs):
        return f"there is no verb {' '.join(words)!r}; the nearest is {' '.join([*outer, near])!r}"
    place = " ".join(["spillable", "help", *(outer if verbs else [])])
    return f"there is no verb {' '.join(words)!r}; '{place}' lists them"


def _nearest(word: str, verbs: Collection[str]) -> str:
    return nearest_name(word, verbs, cutoff=0.8)


def channel_option_hint(error: Any) -> str:
    """Return how a verb that creates or changes a channel is given an option of it; "" of another verb or mistake.

    Args:
        error: Click's `UsageError`.
    """
    parameters = () if error.ctx is None else error.ctx.command.params
    takes_options = any("-o" in parameter.opts for parameter in parameters)
    is_one = hasattr(error, "option_name") or "unexpected extra argument" in error.message
    return "; an option of a channel is given as -o NAME=VALUE" if takes_options and is_one else ""
