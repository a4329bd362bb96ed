"""A call that is not understood: what to write instead."""

from __future__ import annotations

import pytest

from tests.support.command_line import run


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("get c", "there is no verb 'get'; 'spillable help' lists them"),
        ("verif c", "there is no verb 'verif'; the nearest is 'verify'"),
        ("groups c", "'groups' has no verb 'c': give one of list, create, drop, seek, as in 'spillable groups list …'"),
        ("groups lst c", "there is no verb 'lst'; the nearest is 'list'"),
        ("dead-letters c", "'dead-letters' has no verb 'c': give one of list, show, "),
        ("create c --capacity 3", "No such option: --capacity; an option of a channel is given as -o NAME=VALUE"),
        ("alter c keepAlive=5", "(keepAlive=5); an option of a channel is given as -o NAME=VALUE"),
    ],
)
def test_a_wrong_verb_or_option_is_answered_with_what_there_is(call: str, said: str) -> None:
    done = run(*call.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.replace("│", "").split())


@pytest.mark.parametrize("call", ["stats c --nosuch", "stats c more"])
def test_a_verb_that_takes_no_option_of_a_channel_advises_none(call: str) -> None:
    assert "-o NAME=VALUE" not in run(*call.split()).stderr
