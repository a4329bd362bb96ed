"""One rule: a message names an option as the user of the process writes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import spillable_stream
from spillable_stream import Channel, ChannelFullError, Event, OptionError, Producer, PutTooLargeError
from spillable_stream.option_names import keyword_of, name_as_in_files, name_of, named, named_like, nearest_name
from spillable_stream.options import CHANNEL, CREATION, OPTIONS, PRODUCER, SINK, parse_options
from tests.support.command_line import run


def test_a_python_program_reads_keywords_and_any_other_door_names() -> None:
    assert (named("dataDirs"), named("data_dirs"), named("ttl")) == ("data_dirs", "data_dirs", "ttl")
    name_as_in_files()
    assert (named("dataDirs"), named("data_dirs"), named("ttl")) == ("dataDirs", "dataDirs", "ttl")


def test_a_name_and_a_keyword_are_two_forms_of_one() -> None:
    for option in OPTIONS:
        if option.name != option.keyword:
            assert name_of(keyword_of(option.name)) == option.name


def test_the_nearest_name_is_said_of_a_slip_and_none_of_what_is_like_none() -> None:
    known = ("keepAlive", "memoryCapacity")
    assert [nearest_name(given, known) for given in ("keepalve", "zzz", "")] == ["keepAlive", "", ""]
    assert nearest_name("keepalve", known, cutoff=0.99) == ""


def test_a_name_of_megabytes_is_compared_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(given: str, *_: object) -> list[str]:
        assert len(given) < 1000
        return []

    monkeypatch.setattr("difflib.get_close_matches", compared)
    text = "x" * (10 << 20)
    with pytest.raises(OptionError, match=r"… \(10,485,760 characters\) is not an option of a channel, which has "):
        parse_options({text: 1}, [CHANNEL], where="a channel")
    assert nearest_name(text, [text]) == ""


def test_an_option_that_is_given_is_named_as_it_was_written() -> None:
    assert [named_like(given, "keepAlive") for given in ("keep_alive", "keepAlive", "KEEPALIVE")] == [
        "keep_alive",
        "keepAlive",
        "keepAlive",
    ]
    assert (named_like("keepalive", "keepAlive"), named_like("lingr", "linger_ms")) == ("keep_alive", "linger_ms")
    name_as_in_files()
    assert named_like("keepalive", "keepAlive") == "keepAlive", "Spark may give it so"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keep_alive": "x"}, "keep_alive must be"),
        ({"keepAlive": "x"}, "keepAlive must be"),
        (
            {"max_offsets_per_trigger": 1},
            "max_offsets_per_trigger is not an option of a test but of a streaming source",
        ),
        ({"keep_aliv": 1}, "the nearest is 'keep_alive'"),
        ({"keepAliv": 1}, "the nearest is 'keepAlive'"),
        ({"nosuch": 1}, "'nosuch' is not an option of a test, which has transaction_capacity, memory_capacity, "),
        ({"keep_alive": 1, "keepAlive": 1}, "keepAlive is given twice"),
    ],
)
def test_a_wrong_option_is_told_in_the_words_that_it_was_given_in(given: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        parse_options(given, (CHANNEL, CREATION, PRODUCER, SINK), where="a test")


def test_what_a_channel_raises_later_has_the_same_words(path: Path, tmp_path: Path) -> None:
    with Channel(path, overflow_capacity=2, keep_alive=0, minimum_required_space=0) as channel:
        with pytest.raises(PutTooLargeError, match="Raise overflow_capacity"), channel.put_transaction() as tx:
            tx.put_many([Event(b"")] * 3)
        with channel.put_transaction() as tx:
            tx.put_many([Event(b"")] * 2)
        with pytest.raises(ChannelFullError, match="or raise overflow_capacity"), channel.put_transaction() as tx:
            tx.put(Event(b""))
        with pytest.raises(OptionError, match=r"^data_dirs is fixed when a channel is created"):
            Channel(path, data_dirs=[tmp_path / "other"])
        with pytest.raises(OptionError, match=r"\(transaction_capacity\)"):
            Producer(channel, batch_count_threshold=20_000)


def test_the_command_line_says_what_dash_o_takes(path: Path, tmp_path: Path) -> None:
    assert run("create", path, "-o", "overflowCapacity=2").exit_code == 0
    assert "dataDirs is fixed" in run("alter", path, "-o", f"dataDirs={tmp_path}/other").stderr
    assert "keepAlive must be" in run("alter", path, "-o", "keepAlive=x").stderr
    (tmp_path / "lines").write_text("a\nb\nc\n")
    assert "or raise overflowCapacity" in run("put", path, tmp_path / "lines").stderr


OF_SPARK_OR_FILES = {"spark", "flow", "config_file.py"}  # whose options have no keywords
TABLES = {"options.py", "option_types.py"}


def test_no_message_names_an_option_but_by_that_rule() -> None:
    """A literal name in a text is one that a Python program does not write."""
    root = Path(spillable_stream.__file__).parent
    own = {o.name for o in OPTIONS if o.name != o.keyword and {CHANNEL, CREATION} & set(o.scopes)}
    found = []
    for file in sorted(root.rglob("*.py")):
        if (OF_SPARK_OR_FILES | TABLES) & set(file.relative_to(root).parts):
            continue
        tree = ast.parse(file.read_text())
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            f"{file.relative_to(root)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
            if " " in node.value and own & set(re.findall(r"\w+", node.value))
        ]
    assert found == []
