"""What the arguments of verbs may be, and that nonsense is refused in the words of people, whatever the verb."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from spillable_stream import Channel
from spillable_stream.cli import app
from spillable_stream.cli.arguments import decoded, time_span
from spillable_stream.cli.verbs import import_verbs
from tests.support.command_line import run
from tests.support.events import put, take

NONSENSE = {
    "PLACE": ["-1", "0", "nan", "", "x", "9" * 30, "2026-13-01", "0001-01-01", "10000-01-01", "1e308d", "10:00"],
    "TIME": ["-1", "nan", "", "x", "1x", "1e", "\N{DEVANAGARI DIGIT ONE}h", "2026-01-31"],
    "number": ["", "x", "1.5", "nan", "inf", "1e400", "0x10", "-1"],
}
OF_PYTHON = re.compile(r"Traceback|datetime|timedelta|\bNone\b|[VT]\w+Error|Overflow|codec|invalid literal|isoformat")


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name in command.commands:
        yield from leaves(command.commands[name], (*path, name))


def calls() -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield each verb, an option of it or the place of an argument, and which kind of value that has."""
    import_verbs(["help"])
    for verb, command in leaves(get_command(app)):
        for parameter in command.params:
            kind = parameter.metavar if parameter.metavar in NONSENSE else ""
            if type(parameter.type).__name__.startswith(("Int", "Float")):
                kind = "number"
            if kind and not getattr(parameter, "is_flag", False):
                yield verb, parameter.opts[-1], str(kind)


@pytest.mark.parametrize(
    ("verb", "name", "kind"), list(calls()), ids=lambda value: value if isinstance(value, str) else "-".join(value)
)
def test_nonsense_is_refused_with_status_2_and_no_term_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...], name: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with Channel("c", minimum_required_space=0) as channel:
        put(channel, b"a", b"b")
        take(channel, 1, group="g")
    arguments = {"groups": ["c", "h" if "create" in verb else "g"], "export": ["c", "o.csv"], "put": ["c", "c"]}.get(
        verb[0], ["c"]
    )
    for value in NONSENSE[kind]:
        if value == "0" and name == "--port":
            continue
        given = [name, value] if name.startswith("-") else ["--", value] if value.startswith("-") else [value]
        done = run(*verb, *arguments, *given)
        assert done.exit_code == 2, (given, done.output)
        assert not OF_PYTHON.search(done.output), (given, done.output)
        assert not Path("o.csv").exists()


@pytest.mark.parametrize("verb", ["create", "put", "top --once"])
@pytest.mark.parametrize("path", ["memoryCapacity=1000", "retention_ms=5"])
def test_an_option_that_lacks_its_o_becomes_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*verb.split(), path)
    assert done.exit_code == 2 and "is an option" in done.output and not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["./memoryCapacity=1000", "date=2026-01-31"])
def test_a_directory_may_have_an_equals_sign_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("create", path).exit_code == 0 and (tmp_path / path / "channel.json").exists()


@pytest.mark.parametrize("verb", ["dead-letters list c -g", "take c -g", "groups create c"])
@pytest.mark.parametrize("name", ["", "a/b", "..", "\n"])
def test_what_can_not_be_a_group_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, name: str
) -> None:
    """A list for a group without a name, of an unset variable, was that of all dead letters."""
    monkeypatch.chdir(tmp_path)
    Channel("c", minimum_required_space=0).close()
    assert run(*verb.split(), name).exit_code == 2


def test_a_time_has_the_words_of_options_and_bounds_of_its_own() -> None:
    assert [time_span()(text) for text in ("90", "1.5m", "500ms", "2h")] == [90, 90, 0.5, 7200]
    assert time_span(0.1, 60)(1.0) == 1.0, "a default is parsed, too"
    for text, said in (
        ("soon", "'soon' is not a time: give seconds, or a number with ms, s, m, h or d; 0.1 to 60 s"),
        ("2m", "^'2m' is too long: give 0.1 to 60 s"),
        ("10ms", "^'10ms' is too short: give 0.1 to 60 s"),
        ("nan", "'nan' is not a time"),
    ):
        with pytest.raises(typer.BadParameter, match=said):
            time_span(0.1, 60)(text)
    with pytest.raises(typer.BadParameter, match=r"^'-1' is too short: give 0 s or more"):
        time_span()("-1")


@pytest.mark.parametrize(
    ("given", "text"),
    [(None, None), ("grüße", "grüße"), ("gr\udcc3\udcbc\udcc3\udc9fe", "grüße"), (["\udcc3\udcb6"], ["ö"])],
)
def test_a_name_is_text_also_where_the_locale_lacks_its_letters(
    given: str | list[str] | None, text: str | list[str] | None
) -> None:
    assert decoded(given) == text


@pytest.mark.parametrize("given", ["\udcff", "\ud800", ["a", "\udcc3"]])
def test_a_name_that_is_not_utf_8_is_refused(given: str | list[str]) -> None:
    with pytest.raises(typer.BadParameter, match="is not text in UTF-8"):
        decoded(given)
