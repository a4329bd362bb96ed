"""The changes that the page makes where it was started so; each asks first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nicegui import ui

from spillable_stream.observe.observed_channel import FAILURES
from spillable_stream.shown_value import encodable
from spillable_stream.ui.changes import ChannelChanges, changeable_options, creation_question

__all__ = ["change_panel"]

_REFRESH_SECONDS = 1.0


def change_panel(changes: ChannelChanges, path: str, groups: Callable[[], list[str]]) -> None:
    """Lay out the panel.

    Args:
        changes: makes the changes.
        path: the channel.
        groups: returns the names of its groups now.
    """
    with ui.element("div").classes("s-grid"):
        selects = [_move_card(changes, path, groups())]
        _create_card(changes, path, groups)
        selects.append(_drop_card(changes, path, groups()))
        _option_card(changes, path)
        _checkpoint_card(changes, path)

    def refresh() -> None:
        names = groups()
        for select in selects:
            if select.options != names:
                select.set_options(names, value=select.value if select.value in names else None)

    ui.timer(_REFRESH_SECONDS, refresh)


def _move_card(changes: ChannelChanges, path: str, groups: list[str]) -> ui.select:
    with _card("Move a group"):
        group = ui.select(groups, label="Group").props("outlined dense").classes("w-full")
        to = ui.input("To", placeholder="earliest, latest, ID, time, 15m").props("outlined dense").classes("w-full")
        _button(
            "Move",
            lambda: f"Move the group {group.value} of {path} to {to.value}? It takes all events from there on again.",
            lambda: changes.seek(path, str(group.value or ""), str(to.value or "")),
        )
    return group


def _create_card(changes: ChannelChanges, path: str, groups: Callable[[], list[str]]) -> None:
    with _card("Create a group"):
        name = ui.input("Name").props("outlined dense").classes("w-full")
        at = ui.select(["earliest", "latest"], value="earliest", label="Begins at").props("outlined dense")
        at.classes("w-full")
        _button(
            "Create",
            lambda: creation_question(path, str(name.value or ""), str(at.value), groups()),
            lambda: changes.create_group(path, str(name.value or ""), str(at.value)),
        )


def _drop_card(changes: ChannelChanges, path: str, groups: list[str]) -> ui.select:
    with _card("Drop a group"):
        dropped = ui.select(groups, label="Group").props("outlined dense").classes("w-full")
        _button(
            "Drop",
            lambda: f"Drop the group {dropped.value} of {path}? Its position is lost, and it holds no events back.",
            lambda: changes.drop_group(path, str(dropped.value or "")),
        )
    return dropped


def _option_card(changes: ChannelChanges, path: str) -> None:
    with _card("Change an option"):
        names = [option.name for option in changeable_options()]
        option = ui.select(names, label="Option", with_input=True).props("outlined dense").classes("w-full")
        value = ui.input("Value").props("outlined dense").classes("w-full")
        _button(
            "Change",
            lambda: f"Set {option.value} of {path} to {value.value}, for all who use it?",
            lambda: changes.alter(path, str(option.value or ""), str(value.value or "")),
        )


def _checkpoint_card(changes: ChannelChanges, path: str) -> None:
    with _card("Checkpoint"):
        ui.label("Makes the next open short, and removes files that are no longer needed.").classes("s-soft")
        _button("Create a checkpoint", lambda: f"Create a checkpoint of {path}?", lambda: changes.checkpoint(path))


def _card(title: str) -> ui.element:
    card = ui.element("section").classes("s-card column").props(f'aria-label="{title}"')
    with card:
        ui.html(title, sanitize=False, tag="h2").classes("s")
    return card


def _button(text: str, question: Callable[[], str], change: Callable[[], str]) -> None:
    ui.button(text, on_click=lambda: _ask(question(), change)).props("no-caps outline")


async def _ask(question: str, change: Callable[[], str]) -> None:
    """Make a change if the answer to a question is yes, and say what came of it."""
    with ui.dialog() as dialog, ui.card().classes("s-card"):
        ui.label(encodable(question))
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("no-caps flat autofocus")
            ui.button("Do it", on_click=lambda: dialog.submit(True)).props("no-caps unelevated color=negative")
    answer = await dialog
    dialog.delete()
    if answer:
        try:
            ui.notify(encodable(await asyncio.to_thread(change)), type="positive")
        except FAILURES as e:
            ui.notify(encodable(str(e)), type="negative", multi_line=True, timeout=0, close_button="Close")
