"""What all verbs share."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from spillable_stream import Channel, CorruptionError, DataLossError, NotAChannelError, OptionError, StorageError
from spillable_stream.cli import app, main
from spillable_stream.cli.app import (
    UNHEALTHY,
    UNKNOWN,
    _Verbs,
    as_line,
    confirm,
    cut_short,
    ending,
    fail,
    print_object,
    status_after,
    until_signal,
)
from spillable_stream.termination import Terminated
from tests.support.command_line import ASCII_FILES, run, start
from tests.support.events import peek, put


def test_an_interrupt_names_the_object_that_a_store_has_not_answered_for(capsys: pytest.CaptureFixture[str]) -> None:
    interrupt = KeyboardInterrupt()
    interrupt.add_note("s3://bucket/orders/hint had no answer from the store for 4 s")
    cut_short(interrupt, "nothing was taken")
    assert capsys.readouterr().err == (
        "interrupted: s3://bucket/orders/hint had no answer from the store for 4 s; nothing was taken\n"
    )


def test_a_failure_is_one_line_on_standard_error_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        fail("/data/orders", ValueError("no such thing"), False, UNKNOWN)
    assert ended.value.exit_code == UNKNOWN
    assert capsys.readouterr() == ("", "ValueError: no such thing\n")


def test_a_failure_is_one_object_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        fail("/data/orders", ValueError("no such thing"), True, UNKNOWN)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"path": "/data/orders", "error": "ValueError", "text": "no such thing"} and err == ""


def commands() -> list[tuple[str, Any]]:
    """Every verb, with its words."""
    root: Any = typer.main.get_command(app)
    found = []
    for name, command in root.commands.items():
        more = getattr(command, "commands", {"": command})
        found += [(f"{name} {other}".strip(), verb) for other, verb in more.items()]
    return found


def test_every_verb_has_help_with_an_example_and_its_exit_statuses() -> None:
    assert {"put", "take", "tail", "export", "stats", "describe", "create", "alter", "backup", "restore", "verify",
            "repair", "check-store", "groups list", "groups create", "groups drop", "groups seek"} <= {
        name for name, _ in commands()
    }  # fmt: skip
    for name, command in commands():
        text = command.help or ""
        assert f"Example: `spillable {name} " in text or f"| spillable {name}" in text, name
        assert "Exit status: 0" in text, name
        shown = CliRunner().invoke(app, [*name.split(), "--help"])
        assert shown.exit_code == 0 and "Example:" in shown.stdout, name


def test_the_help_shows_every_verb_once_and_puts_and_takes_first() -> None:
    root: Any = typer.main.get_command(app)
    shown = root.list_commands(None)
    assert sorted(shown) == sorted(root.commands)
    assert shown[:4] == ["put", "take", "tail", "export"]
    headings = re.findall(r"╭─ (.+?) ─", CliRunner().invoke(app, ["--help"]).stdout)
    assert headings == ["Options", *dict.fromkeys(root.commands[name].rich_help_panel for name in shown)]


def test_without_a_verb_the_help_is_shown_and_completion_can_be_installed() -> None:
    shown = CliRunner().invoke(app, [])
    assert "Usage:" in shown.output and "--install-completion" in shown.output


def test_an_error_ends_a_verb_with_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    for error, status in (
        (NotAChannelError("x"), UNKNOWN),
        (OptionError("x"), UNKNOWN),
        (ImportError("x"), UNKNOWN),
        (StorageError("x"), UNHEALTHY),
        (KeyboardInterrupt(), 130),
        (Terminated(), 143),
    ):
        with pytest.raises(typer.Exit) as ended, ending("/data/orders", interrupted=lambda: "3 of 5 are done"):
            raise error
        assert ended.value.exit_code == status
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted: 3 of 5 are done"
    with pytest.raises(ZeroDivisionError), ending("/data/orders"):
        raise ZeroDivisionError  # a fault of this package is not dressed up


def test_damage_in_the_verbs_channel_is_said_with_the_verb_that_tells_more(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    at, gone = f"{tmp_path}/c/data/log-000001", f"{tmp_path}/backup/manifest"
    for error, hint in (
        (CorruptionError("a frame is damaged", at, 928), f": see what is lost with 'spillable verify {tmp_path}/c'"),
        (CorruptionError("the backup is damaged", gone), ""),
        (DataLossError("the event 1 has left", at), ""),
    ):
        with pytest.raises(typer.Exit), ending(f"{tmp_path}/c"):
            raise error
        assert capsys.readouterr().err == f"{type(error).__name__}: {error}{hint}\n"


def test_where_nobody_can_be_asked_a_yes_is_required(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["spillable_stream.cli.app"], "is_terminal", lambda: False)
    confirm("/data/orders", "Drop it?", True)
    with pytest.raises(typer.Exit) as ended:
        confirm("/data/orders", "Drop it?", False)
    assert ended.value.exit_code == UNKNOWN and "give --yes" in capsys.readouterr().err


def test_a_program_that_can_not_be_asked_gets_an_object_too(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    (tmp_path / "f.jsonl").write_text("mine")
    done = run("export", path, tmp_path / "f.jsonl", "--json")
    assert done.exit_code == UNKNOWN and done.stderr == ""
    said = json.loads(done.stdout)
    assert said["path"] == str(path) and said["error"] == "OptionError"
    assert said["text"].endswith("Nothing was changed: give --yes where nobody can be asked")
    assert (tmp_path / "f.jsonl").read_text() == "mine"


@pytest.mark.parametrize(("answer", "status"), [(KeyboardInterrupt, 130), (Terminated, 143), (EOFError, UNHEALTHY)])
def test_a_question_that_is_not_answered_changes_nothing_and_says_so(
    answer: type[BaseException],
    status: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unanswered(*_: object) -> str:
        raise answer

    monkeypatch.setattr(sys.modules["spillable_stream.cli.app"], "is_terminal", lambda: True)
    monkeypatch.setattr(sys.modules[typer.confirm.__module__], "visible_prompt_func", unanswered)
    with pytest.raises(typer.Exit) as ended, ending("/data/orders", interrupted=lambda: "it is half done"):
        confirm("/data/orders", "Drop it?", False)
    assert ended.value.exit_code == status
    assert capsys.readouterr().err.splitlines()[-1].endswith("nothing was changed")


@pytest.mark.parametrize("answers", [["n"], []], ids=["no", "end of input"])
def test_a_program_that_is_told_no_gets_an_object_too(
    path: Path, tmp_path: Path, answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(*_: object) -> str:
        if not answers:
            raise EOFError
        return answers.pop()

    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    (tmp_path / "f.jsonl").write_text("mine")
    monkeypatch.setattr(sys.modules["spillable_stream.cli.app"], "is_terminal", lambda: True)
    monkeypatch.setattr(sys.modules[typer.confirm.__module__], "visible_prompt_func", answered)
    done = run("export", path, tmp_path / "f.jsonl", "--json")
    assert done.exit_code == UNHEALTHY
    assert json.loads(done.stdout) == {"path": str(path), "declined": True, "text": "nothing was changed"}
    assert (tmp_path / "f.jsonl").read_text() == "mine"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            PermissionError(13, "Permission denied", "/data/x"),
            "/data/x: Permission denied (errno 13); run it as a user who may do that",
        ),
        (OSError(28, "No space left on device"), "No space left on device (errno 28)"),
        (TimeoutError("the store gives no answer"), "the store gives no answer"),
    ],
)
def test_what_the_system_refuses_is_a_line_too(capsys: pytest.CaptureFixture[str], error: OSError, text: str) -> None:
    with pytest.raises(typer.Exit) as ended, ending("/data/orders"):
        raise error
    assert ended.value.exit_code == UNHEALTHY
    assert capsys.readouterr() == ("", f"{type(error).__name__}: {text}\n")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("stats ''", "a channel's directory"),
        ("repair '' --yes", "a channel's directory"),
        ("top --once /data/orders ''", "a channel's directory"),
        ("put c ''", "a file, or - for standard input"),
        ("tail c --delayed ''", "a file"),
        ("export c ''", "a file"),
        ("send c --filename ''", "a file"),
        ("test ''", "a file"),
        ("check-store ''", "an address in a store"),
    ],
)
def test_an_empty_path_is_refused_rather_than_taken_for_the_working_directory(arguments: str, wanted: str) -> None:
    done = run(*shlex.split(arguments))
    assert done.exit_code == UNKNOWN and f"it is empty; give {wanted}" in " ".join(done.stderr.replace("│", "").split())


def test_an_error_of_a_connection_is_not_one_of_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, ending("/data/orders"):
        raise BrokenPipeError(32, "Broken pipe")
    assert ended.value.exit_code == UNHEALTHY
    assert capsys.readouterr().err == "BrokenPipeError: Broken pipe (errno 32)\n"


@pytest.mark.parametrize("verb", [("take", "--group", "g", "--max", "1"), ("stats",), ("verify",)])
def test_an_output_that_is_closed_is_one_sentence_and_takes_nothing(path: Path, verb: tuple[str, ...]) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    process = start(verb[0], path, *verb[1:], stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    _, said = process.communicate()
    assert (process.returncode, said.decode()) == (
        UNKNOWN,
        "standard output is closed: send it to a file, or to /dev/null\n",
    )
    with Channel(path, create=False) as channel:
        assert peek(channel, group="g") == [b"a"]


def test_letters_that_the_locale_lacks_end_no_verb(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    environment = {**os.environ, **ASCII_FILES}
    process = start("top", path, "--once", "--interval", "0.1", stdout=subprocess.PIPE, env=environment)
    out, _ = process.communicate()
    assert process.returncode == 0 and b"  disk   ?" in out


def test_a_verb_imports_only_what_it_needs(path: Path) -> None:
    """A program that starts for each call should not load the web page, the metrics' server and the repair."""
    Channel(path, minimum_required_space=0).close()
    program = """
import sys
from spillable_stream.cli import main
try:
    main()
finally:
    sys.stdout.flush()
    print(*sys.modules, file=sys.stderr)
"""
    command = [sys.executable, "-c", program, "stats", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "IDs:" in done.stdout
    found = set(done.stderr.split())
    others = {"rich", "asyncio", "http.server", "ssl", "email", "pydantic", "pandas", "pyarrow.compute"}
    assert others.isdisjoint(found)
    rooms = {name.split(".")[1] for name in found if name.startswith("spillable_stream.")}
    assert rooms.isdisjoint({"archive", "flow", "integrity", "producer", "spark", "ui", "workers"})
    shared = {"app", "arguments", "next_steps", "output", "terminal_size", "verbs", "wrong_calls"}
    of_verbs = {name.split(".")[2] for name in found if name.startswith("spillable_stream.cli.")}
    assert of_verbs == {"describe", *shared}, "a verb imports no other verb's modules"


def test_a_verb_prints_one_object_whatever_comes_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    verb = typer.Typer(cls=_Verbs)
    verb.callback()(lambda: None)

    @verb.command()
    def go() -> None:
        print_object({"path": "p", "at": Path("x")})
        raise cut_short(Terminated(), "half of it is done", "p", as_json=True, stored=1)

    done = CliRunner().invoke(verb, ["go"])
    assert (done.exit_code, done.stdout) == (143, '{"path": "p", "at": "x"}\n')
    with pytest.raises(typer.Exit):
        raise cut_short(KeyboardInterrupt(), "half of it is done", "p", as_json=True, stored=1)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"path": "p", "interrupted": True, "text": "half of it is done", "stored": 1}
    assert err == "interrupted: half of it is done\n"


@pytest.mark.parametrize("step", ["parse_args", "resolve_command"])
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("stats c --json", {"interrupted": True, "text": ""}),
        ("groups list c --json", {"interrupted": True, "text": ""}),
        ("stats c", None),
        ("tail c --json", None),
        ("stats -- --json", None),
    ],
)
def test_a_signal_between_the_imports_and_the_verb_prints_its_object(
    monkeypatch: pytest.MonkeyPatch, step: str, call: str, said: dict[str, Any] | None
) -> None:
    def interrupt(*_: object) -> None:
        raise Terminated

    monkeypatch.setattr(_Verbs, step, interrupt)
    done = run(*call.split())
    assert (done.exit_code, done.stderr) == (143, "interrupted\n")
    assert (json.loads(done.stdout) if done.stdout else None) == said


def test_the_command_line_is_built_before_a_signal_is_an_exception(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cli.main` prints no object: its interrupt may be one behind the verb's own."""

    def interrupt(_: object) -> None:
        raise Terminated

    monkeypatch.setattr(typer.main, "get_command", interrupt)
    monkeypatch.setattr(sys, "argv", ["spillable", "version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code and capsys.readouterr().out.startswith("spillable_stream ")


@pytest.mark.parametrize(
    "verb",
    ["describe {} --config f.ini", "create {} --channel c", "tail {} --delayed f -f", "tail {} --delayed f --from 1"],
)
def test_an_option_that_would_say_nothing_is_refused(path: Path, verb: str) -> None:
    if not verb.startswith("create"):
        Channel(path, minimum_required_space=0).close()
    done = run(*verb.format(path).split())
    assert done.exit_code == UNKNOWN and "OptionError: --" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [("ö\n", "ö\n"), ("n\udcc3\udcb6", "nö"), ("\udcff", "\ufffd"), ("\ud800x\udfff", "\ufffdx\ufffd"), ("😀", "😀")],
)
def test_an_object_is_json_for_every_parser_whatever_the_bytes_of_a_path(text: str, said: str) -> None:
    line = as_line({"path": text}).decode()
    assert "\n" not in line and json.loads(line) == {"path": said}
    json.loads(line)["path"].encode()


def test_a_signal_is_the_end_of_a_verb_that_has_no_other() -> None:
    for error in (KeyboardInterrupt, Terminated):
        with pytest.raises(typer.Exit) as ended, until_signal():
            raise error
        assert ended.value.exit_code == 0
    assert (status_after(KeyboardInterrupt()), status_after(Terminated())) == (130, 143)
    assert status_after(Terminated(signal.SIGHUP)) == 129


def test_an_error_behind_the_object_of_a_verb_is_said_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    verb = typer.Typer(cls=_Verbs)
    verb.callback()(lambda: None)

    @verb.command()
    def go() -> None:
        with ending("p", as_json=True):
            print_object({"path": "p"})
            raise StorageError("the disk refused the close")

    done = CliRunner().invoke(verb, ["go"])
    assert (done.exit_code, done.stdout) == (UNHEALTHY, '{"path": "p"}\n')
    assert done.stderr == "StorageError: the disk refused the close\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_verb_that_is_cut_short_has_its_status_though_nobody_hears_it(
    stream: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends the reader of a pipe, too."""

    def refuse(*_: object, err: bool = False) -> None:
        if err == (stream == "stderr"):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(typer, "echo", refuse)
    for error, status in ((KeyboardInterrupt(), 130), (Terminated(), 143)):
        assert cut_short(error, "half of it is done", "p", as_json=True).exit_code == status


@pytest.mark.parametrize(
    "verb",
    [
        "top {} --once --interval 200ms",
        "take {} --wait 10ms",
        "put {} - --ttl 2h --deliver-after 1m",
        "agent -n a1 -f missing.conf --poll-interval 1m --shutdown-timeout 1m",
    ],
)
def test_every_verb_takes_a_time_with_a_unit(path: Path, verb: str) -> None:
    Channel(path, minimum_required_space=0).close()
    assert "not a time" not in run(*verb.format(path).split(), input="").output
    refused = run(*re.sub(r"\d+(ms|m|h)\b", "5x", verb).format(path).split(), input="")
    assert refused.exit_code == 2 and "'5x' is not a time" in " ".join(refused.output.replace("│", "").split())


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("stats --json", "Missing argument 'PATH'."),
        ("stats {} --jsn --json", "No such option: --jsn"),
        ("verify {} more --json", "unexpected extra argument"),
        ("top {} --interval soon --json", "'soon' is not a time"),
        ("groups list --json", "Missing argument 'PATH'."),
        ("backup {} --json", "Missing argument 'COPY'."),
        ("dead-letters show {} first --json", "'first' is not a valid int"),
        ("check-store --json s3://bucket/orders --races 0", "--races"),
    ],
)
def test_a_call_that_is_not_understood_is_an_object_for_a_program(path: Path, verb: str, said: str) -> None:
    done = run(*verb.format(path).split())
    assert (done.exit_code, done.stderr) == (UNKNOWN, ""), done.output
    found = json.loads(done.stdout)
    assert found["error"] == "OptionError" and said in found["text"]


@pytest.mark.parametrize(
    "verb", ["take --json", "tail --json --max", "stats -- --json --jsn", "create --json", "--json"]
)
def test_a_call_that_asks_for_no_object_is_refused_in_words(verb: str) -> None:
    done = run(*verb.split())
    assert (done.exit_code, done.stdout) == (UNKNOWN, "") and "Usage:" in done.stderr
