"""Every kind of finding once: its code, how much it matters, and what it means.

An error is what Flume logs as one, or dies of: something that the file describes does not run, or a line is not read. A
warning is about a flow that runs, but hardly as it was meant, or that loses what it need not lose. A note is advice.
"""

from __future__ import annotations

from types import MappingProxyType

from spillable_stream.flow.configuration.model import Finding, Severity
from spillable_stream.flow.configuration.properties import Entry

__all__ = ["CODES", "ENVIRONMENT", "Findings"]

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

ENVIRONMENT = MappingProxyType({
    "directory-missing": (_ERROR, "a directory that a source reads does not exist, or is not a directory"),
    "directory-unusable": (_ERROR, "a directory can't be read or written, or can't be created"),
    "flume-files": (_ERROR, "the directory of a channel holds files of Flume's own file channel: it is never touched"),
    "flume-tracker": (_WARNING, "Flume's agent has read a part of a file of a spooling directory, which is read again"),
    "file-system-unusable": (_ERROR, "the file system that a sink's path leads to can't be used"),
    "port-in-use": (_ERROR, "another process listens on a source's port"),
    "host-unreachable": (_WARNING, "a host that a sink sends to has no address"),
    "command-missing": (_ERROR, "the command of a source is not there"),
    "agent-runs": (_NOTE, "`spillable agent` runs an agent of this name, as this user on this host"),
})  # fmt: skip

CODES = MappingProxyType({
    # reading
    "malformed-line": (_ERROR, "a `\\u` without four hexadecimal digits: the line is ignored"),
    "empty-value": (_ERROR, "a key without a value: the line is ignored, and the default holds"),
    "no-agent": (_ERROR, "a key without the name of an agent, or of a property: the line is ignored"),
    "invalid-key": (_ERROR, "a key that is neither a list of components nor a property of one: the line is ignored"),
    "comment": (_WARNING, "a line that begins as a comment of another language; here `#` begins one"),
    "no-break-space": (_WARNING, "a character that looks like a blank, and is a part of the name or value"),
    "comment-in-value": (_WARNING, "a `#` after a value, which does not begin a comment there"),
    "lost-backslash": (_WARNING, "a single backslash, which vanishes; a pattern needs two"),
    "duplicate-key": (_WARNING, "a key that a file gives twice; the last one counts"),
    "latin-1": (_NOTE, "a file that is not UTF-8: it is read as Latin-1, as Java does"),
    # substitution
    "unresolved": (_WARNING, "a `${…}` that nothing answers: it stays as it stands"),
    "substitution-loop": (_ERROR, "a value that refers to itself, or grows too much: it stays as it stands"),
    "filter-failed": (_ERROR, "a config filter that gives no answer: the `${…}` stays as it stands"),
    # what runs
    "missing-agent": (_ERROR, "a file without an agent, or without the one that is asked for"),
    "invalid-agent": (_ERROR, "an agent without anything that runs"),
    "no-sources": (_WARNING, "an agent without a source: something else must put into its channels"),
    "no-sinks": (_WARNING, "an agent without a sink: something else must take from its channels"),
    "not-described": (_ERROR, "a component that is listed, and has no property"),
    "not-listed": (_WARNING, "a component that is described, and not listed: it does not run"),
    "listed-twice": (_WARNING, "a name that a list has twice"),
    "list-commas": (_ERROR, "a list with commas; names are separated by white space"),
    "no-type": (_ERROR, "a component without a type"),
    "unknown-type": (_ERROR, "a type that does not exist"),
    "unsupported-type": (_ERROR, "a type of Flume's that does not run here; the text says what to use instead"),
    "unusable-class": (_ERROR, "a class of your own that can't be found, loaded or built"),
    "missing-property": (_ERROR, "a component without a property that it needs"),
    "bad-value": (_ERROR, "a value that a component refuses"),
    "unsupported-property": (_ERROR, "a property that does not work here, and whose component can't do without"),
    "part-fails": (_ERROR, "a source whose interceptor or selector can't work, or a group whose processor can't"),
    "no-channel": (_ERROR, "a source without a channel, or a sink whose channel is missing or does not run"),
    "invalid-channel": (_ERROR, "a channel of a component does not run, or is not for dead letters; it runs without"),
    "selector-channel": (_ERROR, "a selector that names a channel that is not one of its source's"),
    "batch-too-large": (_ERROR, "a batch that is larger than the channel's `transactionCapacity`"),
    "shared-directory": (_ERROR, "two channels in one directory"),
    "channel-loop": (_ERROR, "a sink of type `channel` whose events come back into its channel, forever"),
    "port-twice": (_ERROR, "two sources that listen on one port"),
    "position-file-twice": (_ERROR, "two taildir sources with one position file: the second one can't be started"),
    "sink-in-two-groups": (_ERROR, "a sink of two groups: it stays in the first"),
    "group-sink": (_ERROR, "a group names a sink that does not run; it runs with the others"),
    "no-sink-in-group": (_ERROR, "a group without a sink that runs"),
    "group-size": (_ERROR, "a group with more sinks or fewer than its processor can serve: none of them runs"),
    "unused-channel": (_WARNING, "a channel that no component uses: it is not opened"),
    # what is hardly meant
    "unknown-property": (_WARNING, "a property that its component does not have: nothing reads it"),
    "wrong-prefix": (_WARNING, "a property with a prefix too many or too few: nothing reads it"),
    "unused-property": (_NOTE, "a property of Flume's that has no use here"),
    "idle-property": (_WARNING, "a property that does nothing, since another one is not set that would let it count"),
    "deprecated": (_WARNING, "an old name, which still works"),
    "bad-boolean": (_WARNING, "neither `true` nor `false`: it counts as false"),
    "default-used": (_WARNING, "a value that its component ignores in favour of the default"),
    "roll-defaults": (_WARNING, "an hdfs sink that begins a new file after 10 events or 1,024 bytes"),
    "no-timestamp": (_WARNING, "a path with the time of the events, and nothing in sight that gives them a time"),
    "no-default": (_WARNING, "a multiplexing selector without a default: events of other values vanish"),
    "no-sink": (_WARNING, "a channel that no sink takes from: it fills, unless a query reads it"),
    "group-of-one": (_WARNING, "a group of one sink, which adds nothing"),
    "same-priority": (_WARNING, "two sinks of a group with one priority: the second is never used"),
    "failover-channels": (_WARNING, "a failover group of several channels: those of the lower sinks fill"),
    "no-shell": (_WARNING, "an exec source whose command has a shell's signs, such as a pipe, and no shell"),
    "tail": (_WARNING, "an exec source that runs `tail`: it loses lines at a restart, and a taildir source does not"),
    "http-resend": (_WARNING, "an http sink that sends again what the server has accepted"),
    "memory-channel": (_NOTE, "a memory channel in front of a sink whose files last"),
    "regex": (_NOTE, "a pattern that is slower than others, with the reason"),
    "secret": (_WARNING, "a password or key in plain text"),
    **ENVIRONMENT,
})  # fmt: skip


class Findings:
    """Collects findings."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def add(self, code: str, at: Entry, component: str, text: str) -> Finding:
        """Add a finding about a line.

        Args:
            code: one of `CODES`, which says how severe it is.
            at: the line.
            component: the agent, or the component as ``a1.sources.r1``; empty for none.
            text: what is wrong, and what to do.
        """
        finding = Finding(at.file, at.line, CODES[code][0], code, component, text)
        self._found.setdefault(finding)
        return finding

    def sorted(self, files: list[str]) -> tuple[Finding, ...]:
        """Return what was found, in the order of the files and of their lines."""
        return tuple(sorted(self._found, key=lambda f: (files.index(f.file) if f.file in files else -1, f.line)))
