"""What Spark's exceptions say in this package's own words: the one sentence, without the traces around it.

An error that a source or a sink raises comes to the user inside of one of Spark's: its text begins with Spark's words
and ends with the query's plan, or with traces of the JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spillable_stream import errors

__all__ = ["explain"]

# Python's traces end with the exception's class and message; Spark adds its error's state, and more.
_OURS = re.compile(r"^spillable_stream\.errors\.(\w+): (.*?)(?=\n SQLSTATE: |\n\n|\n\tat |\n=== |\n*\Z)", re.M | re.S)
_TRACES = "\nJVM stacktrace:"


def explain(error: BaseException | None) -> str:
    """Return what an exception says in this package's own words, or that it is none of this package's errors.

    Args:
        error: what Spark raised, for a batch or a stream, in classic Spark or Spark Connect; a query's ``exception()``,
            None included; or an exception of this package itself.
    """
    if error is None:
        return "there is no error"
    for link in _chain(error):
        if isinstance(link, errors.SpillableError):
            return str(link)
        if (sentence := _sentence(str(link))) is not None:
            return sentence
    first_line = str(error).strip().partition("\n")[0]
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
    """Return the message of this package's that was raised last; traces of the JVM repeat it, after others maybe."""
    for part in (text.partition(_TRACES)[0], text):
        found = [message for name, message in _OURS.findall(part) if name in errors.__all__]
        if found:
            return str(found[-1])
    return None
