"""Plain English: the linter's patterns, and that nothing here has one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def linter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_english", ROOT / "scripts" / "check_english.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow  # `make check` runs it, too
def test_docs_messages_docstrings_comments_and_names_of_tests_are_clean(linter: ModuleType) -> None:
    assert [str(finding) for finding in linter.findings()] == []


@pytest.mark.parametrize(
    "phrase",
    [
        "The log goes on in a new file.",
        "Go on after the last one.",
        "a group of which nothing is known",
        "knowing that the lock was had",
        "see whether it hangs",
        "Look whether it hangs.",
        "another process holds the lock for more than 30 s",
        "another thread holds X for X s",
        "the file is missing: a checkpoint was made of it",
        "options: as of the constructor",
        "or the other way round",
        "Who starts at the end is told nothing.",
        "It reads ahead: who opens a channel waits.",
        "for who wants all of it",
        "What was lost is reported.",
        "it waits for ever",
        "they are stored all the same",
        "the reader is to be closed",
        "the event tells of a batch",
        "ended without a word",
        "it is refused else; nothing is written",
        "the record makes no sense",
        "a tier that is taken for lost",
        "this shall not fail",
        "the first take makes the group",
        "before a channel is made",
        "a thread that makes checkpoints",
        "a frame that is there twice",
        "the process stands still",
        "a target of one's own",
        "this is no channel",
        "the lock\nof which",
    ],
)
def test_a_translated_phrase_is_found(linter: ModuleType, phrase: str) -> None:
    assert len(list(linter.phrases(phrase))) == 1


def test_a_test_is_named_in_plain_english(linter: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "test_names.py"
    names = (
        "def test_a_log_of_which_half_is_lost() -> None: ...\n\n\nasync def test_a_lock_that_is_taken() -> None: ...\n"
    )
    module.write_text(f"def it_goes_on() -> None: ...\n{names}")
    assert [(found.line, found.phrase) for found in linter.in_names(module)] == [(2, "of which")]


def test_the_changelog_is_checked_like_every_page(linter: ModuleType) -> None:
    assert {ROOT / "CHANGELOG.md", ROOT / "README.md", ROOT / "docs" / "index.md"} <= set(linter.pages())


@pytest.mark.parametrize(
    "phrase",
    [
        "The log continues in a new file.",
        "What is promised?",
        "a list of pairs, each of which has a key",
        "nothing else. Something else, too",
        "There is no channel, and it is no longer open.",
        "`go on` and ``as of`` are code",
        "```python\nshall = 1\n```",
        "a process that goes to disk; who may open it?",
        "It makes a file's bytes and the directory's name durable.",
    ],
)
def test_plain_english_passes(linter: ModuleType, phrase: str) -> None:
    assert list(linter.phrases(phrase)) == []
