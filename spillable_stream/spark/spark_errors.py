"""This package's errors on their way through Spark to a user: one frame each in, one sentence out.

Spark shows a user the whole trace of whatever Python raised. The message of an error of this package says what
happened, to what, and what to do; where in the package that was is for the log, at the level DEBUG. So `short_traces`
takes the package's frames off, and says in the message what a note of it advises: a sentence is one line. Where a
message advises what a program would do with its handle, a user of Spark starts the query again. Any other exception
keeps its trace.

Spark wraps the error in one of its own: its text begins with Spark's words and ends with the query's plan, or with
traces of the JVM. `explain` finds this package's sentence in it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from spillable_stream.errors import CorruptionError, SpillableError
from spillable_stream.log_records import log_of
from spillable_stream.option_names import name_as_in_files

__all__ = ["explain", "short_traces"]

_log = log_of(__name__)

C = TypeVar("C", bound=type)

# Python's traces end with the exception's class and message; Spark adds its error's state, and more.
_OURS = re.compile(
    r"^spillable_stream(?:\.\w+)+\.\w+(?:Error|Warning): (.*?)(?=\n SQLSTATE: |\n\n|\n\tat |\n=== |\n *\+-|\n*\Z)",
    re.M | re.S,
)
_TRACE = "Traceback (most recent call last):"
_OF_PYTHON = re.compile(rf"{re.escape(_TRACE)}\n(?:[ \t].*\n|\n)*(\S.*)")  # what a trace ends with
# Each Spark stops a stream's reader in the end, also one that it could not make.
_OF_NO_READER = "UnboundLocalError: cannot access local variable 'reader'"
_TRACES = "\nJVM stacktrace:"
_OF_A_GROUP = "Exception Group Traceback (most recent call last):"  # its lines are behind a margin
_MARGIN = re.compile(r"^ *\| ?", re.M)

_OF_HANDLES = tuple(  # what messages advise, and what that is to a query
    (re.compile(rf"\b{advice}\b", re.I), of_query)
    for advice, of_query in (
        ("(?:close the handle, and )?open the channel where it is now", "start the query again where the channel is"),
        ("open (?:it|the channel) again", "start the query again"),
        ("failed and must be opened again", "failed, and the query must be started again"),
        (
            "roll (?:it )?back, and begin another (?:take|one)(?:, which (?:owns|claims) it again)?",
            "start the query again",
        ),
        (
            "put fewer at once",
            "write fewer rows at once; a query's batch that was planned comes again as it is, and maxEventsPerTrigger "
            "bounds those after it",
        ),
    )
)


def short_traces(decorated: C) -> C:
    """Have the public methods of a class, which Spark calls, raise this package's errors with at most one frame of it.

    Options have the names that Spark gives them.
    """
    for name, member in list(vars(decorated).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(decorated, name, _short(member))
    return decorated


def _short(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)  # Spark looks at the signature
    def call(*args: Any, **named: Any) -> Any:
        name_as_in_files()  # as Spark's options are
        try:
            result = method(*args, **named)
        except SpillableError as e:
            _keep_trace(e)
            raise _as_shown(e) from None
        return _short_iterator(result) if isinstance(result, Iterator) else result

    return call


def _short_iterator(iterator: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from iterator
    except SpillableError as e:
        _keep_trace(e)
        raise _as_shown(e) from None


def _keep_trace(error: SpillableError) -> None:
    _log.debug("raised to Spark: %s", error, exc_info=error)


def _as_shown(error: SpillableError) -> SpillableError:
    """Return an error without its trace, with its notes in its message, and with advice that a query can follow."""
    if isinstance(error, CorruptionError) and (notes := getattr(error, "__notes__", ())):
        error = type(error)(f"{error}: {'; '.join(notes)}")
    if error.args and isinstance(text := error.args[0], str):
        error.args = (_as_of_queries(text), *error.args[1:])
    return error.with_traceback(None)


def _as_of_queries(text: str) -> str:
    """Return a message with the advice for whom a query runs, and not for a program that has a handle."""
    for advice, of_query in _OF_HANDLES:
        found = advice.search(text)
        if found is not None:
            of_query = of_query.capitalize() if found[0][0].isupper() else of_query
            text = f"{text[: found.start()]}{of_query}{text[found.end() :]}"
    return text


def explain(error: BaseException | None) -> str:
    """Return what an exception says in this package's own words, or that it is none of this package's errors.

    Of a group of exceptions it is a line for each that says something else.

    Args:
        error: what Spark raised, for a batch or a stream, in classic Spark or Spark Connect; a query's ``exception()``,
            None included; or an exception of this package itself.
    """
    if error is None:
        return "there is no error"
    for link in _chain(error):
        if isinstance(link, BaseExceptionGroup):
            return "\n".join(dict.fromkeys("\n".join(map(explain, link.exceptions)).split("\n")))
        if isinstance(link, SpillableError):
            return str(link)
        if (sentence := _sentence(str(link))) is not None:
            return sentence
    text = str(error).strip()
    first_line = text.partition("\n")[0]
    if raised := [end for end in _OF_PYTHON.findall(text) if not end.startswith(_OF_NO_READER)]:
        first_line = f"{first_line.removesuffix(_TRACE).rstrip(':. ')}: {raised[-1]}"
    return f"the error is not one of spillable_stream: {type(error).__name__}{': ' if first_line else ''}{first_line}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _sentence(text: str) -> str | None:
    """Return the message of this package's that was raised last, or each one of a group, a line each.

    Traces of the JVM repeat it, after others maybe.
    """
    is_group = _OF_A_GROUP in text
    for part in (text.partition(_TRACES)[0], text):
        if found := _OURS.findall(_MARGIN.sub("", part) if is_group else part):
            return "\n".join(dict.fromkeys(found)) if is_group else str(found[-1])
    return None
