"""What an agent of files exchanges while it runs: what changed files say, and channels that a storage failure closed.

Whatever is exchanged is assembled before anything of the old one ends, in a thread, so that a signal does not wait for
it; `RunningFlow.exchange` does the rest. It is dropped where it was assembled beside something that runs no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from spillable_stream.counted import counted
from spillable_stream.error_text import text_of
from spillable_stream.errors import StorageError
from spillable_stream.flow.assembling import Assembling
from spillable_stream.flow.assembly import assemble
from spillable_stream.flow.changes import Changes, changes, with_users
from spillable_stream.flow.configuration.model import AgentConfig, Finding
from spillable_stream.flow.configuration_files import ConfigurationFiles
from spillable_stream.flow.failed_channels import FailedChannels
from spillable_stream.flow.reload import Reload
from spillable_stream.flow.reopening import Reopenings
from spillable_stream.flow.running_flow import RunningFlow
from spillable_stream.flow.wired import Wired
from spillable_stream.log_records import fields, log_of

__all__ = ["Exchanges", "Reloading"]

_log = log_of("spillable_stream.flow")

_AGAIN_SECONDS = 3.0  # as often as a supervisor looks at what it runs
_MOST_BESIDE = 8  # each may hang, and keeps a thread and what it has opened


class Reloading(NamedTuple):
    """Files that are being read again, and what is assembled from them."""

    reload: Reload
    attempt: Assembling


class Exchanges:
    """Exchanges parts of an agent that runs from files. The agent calls one method at a time.

    Args:
        files: the files.
        config: what the agent is by them.
        findings: what was found in them.
        flow: what runs.
        seconds: tells how long what is exchanged may take to end.

    Attributes:
        config: what the agent is by the files that it runs from.
        findings: what was found in these.
        reopenings: the tries to open failed channels again.
    """

    def __init__(
        self,
        files: ConfigurationFiles,
        config: AgentConfig,
        findings: tuple[Finding, ...],
        flow: RunningFlow,
        seconds: Callable[[], float],
    ) -> None:
        self.config: AgentConfig = config
        self.findings: tuple[Finding, ...] = findings
        self.reopenings: Reopenings = Reopenings()
        self._files, self._flow, self._seconds = files, flow, seconds
        self._reloading: Reloading | None = None
        self._beside: list[Assembling] = []  # that somebody waits for, or that hang and were given up
        self._again_at = float("inf")  # when it is tried once more to begin a reload, in monotonic seconds

    def assemble_all(self) -> None:
        """Let the flow run all of the files; raises what `assemble` raises."""
        every = changes(AgentConfig(name=""), self.config)
        self._flow.wired = assemble(self._files.name, self.config, self._files.system, every, Wired())

    def drop(self) -> bool:
        """Close what was opened, or will be, and is not run; tell whether all of it is closed."""
        reloads = [] if self._reloading is None else [self._reloading.attempt]
        dropped = [attempt.drop() for attempt in (*self._beside, *reloads)]
        return self.reopenings.drop() and all(dropped)

    # ── changed files ───────────────────────────────────────────────────────────────────────

    def read(self) -> Reloading:
        """Begin to read the files again, beside what else is assembled; `end_read` ends that.

        Raises:
            StorageError: the process can have no more threads, or too much hangs.
        """
        reloading = self._read()
        self._beside.append(reloading.attempt)
        return reloading

    def _read(self) -> Reloading:
        self._beside = [one for one in self._beside if not one.is_closed]
        if len(self._beside) >= _MOST_BESIDE:
            raise StorageError(
                f"what {counted(len(self._beside), 'earlier content')} of its files said is still being assembled; see "
                "at which component these hang, and check its disk or its store"
            )
        reload, runs = Reload(self._files, self.config, self.findings), self._flow.wired
        under_way = f"the changed configuration of the agent {self._files.name} is still being assembled"
        attempt = Assembling(self._files.name, under_way, runs, partial(reload.assemble, runs))
        return Reloading(reload, attempt)

    def end_read(self, reloading: Reloading) -> Changes | None:
        """Run what is assembled, and return what that changed; None if the files were refused.

        Where it was assembled beside what runs no more, it is dropped, and `is_outdated` has said so.
        """
        reload, attempt = reloading
        if self.is_outdated(reloading):
            attempt.drop()
            return None
        self._beside = [one for one in self._beside if one is not attempt]
        return self._take(reload, attempt)

    def is_outdated(self, reloading: Reloading) -> bool:
        """Tell whether something else runs now than when the files were read, or others were taken since."""
        return reloading.attempt.before is not self._flow.wired or reloading.reload.running is not self.config

    def _take(self, reload: Reload, attempt: Assembling) -> Changes | None:
        """Run what changed files say, if they can be taken."""
        try:
            wired = attempt.result()
        except Exception as e:  # a class of the user's may raise anything
            reload.say_refused(e)
            return None
        reload.say_taken()
        if reload.changes:
            self._flow.exchange(wired, self._seconds())
        self.config, self.findings = reload.config, reload.findings
        return reload.changes

    def reload_if_due(self, *, is_asked: bool, every_seconds: float | None) -> bool:
        """Run what changed files say as soon as it is assembled, and begin to read files that have changed since.

        They are read as well where what they said before hangs: that is given up then.

        Args:
            is_asked: whether somebody wants them to be read.
            every_seconds: how often the files are looked at; None for never.

        Returns:
            Whether they are being read now for the one who asked, or will be as soon as they can.
        """
        reloading = self._reloading
        if reloading is not None and reloading.attempt.is_over:
            self._end_reload(reloading)
            return False
        if reloading is not None and not reloading.attempt.hangs():
            return False
        is_due = self._files.have_changed(every_seconds) or time.monotonic() >= self._again_at
        if not (is_asked or is_due):
            return False
        if reloading is not None:
            reloading.attempt.give_up()
            self._beside.append(reloading.attempt)
        self._begin_reload()
        return True

    def _begin_reload(self) -> None:
        try:
            self._reloading, self._again_at = self._read(), float("inf")
        except StorageError as e:
            self._reloading = None
            self._try_again(e)

    def _try_again(self, e: StorageError) -> None:
        """Let a reload begin later, and say so the first time."""
        if self._again_at == float("inf"):
            _log.error(
                "the changed configuration of the agent %s can't be read yet, and that is tried again every %g s: %s",
                self._files.name,
                _AGAIN_SECONDS,
                text_of(e),
                extra=fields(component=self._files.name, seconds=_AGAIN_SECONDS),
            )
        self._again_at = time.monotonic() + _AGAIN_SECONDS

    def _end_reload(self, reloading: Reloading) -> None:
        """Run what is assembled; or assemble it anew, where it was assembled beside what runs no more."""
        self._reloading = None
        is_outdated = self.is_outdated(reloading)
        self.end_read(reloading)
        if is_outdated:
            self._begin_reload()

    # ── failed channels ─────────────────────────────────────────────────────────────────────

    def reopen(self, failed: FailedChannels) -> None:
        """Start anew what uses a channel that a storage failure closed, as soon as that can be opened again."""
        if (attempt := self.reopenings.take_over()) is not None:
            self._exchange(failed, attempt)
        elif self.reopenings.may_begin() and (due := failed.due(self.reopenings.channels)):
            self.begin_reopening(failed, due)

    def _exchange(self, failed: FailedChannels, attempt: Assembling) -> None:
        if attempt.before is not self._flow.wired:
            attempt.drop()
            return
        try:
            wired = attempt.result()
        except Exception as e:  # a class of the user's may raise anything
            failed.refused(attempt.name, e)
            return
        self._flow.exchange(wired, self._seconds(), keeps_finished=True)
        failed.look(self._flow.wired.channels)

    def begin_reopening(self, failed: FailedChannels, channel: str) -> None:
        """Begin to open a channel again.

        Args:
            failed: is told if that can't begin.
            channel: the channel's name.
        """
        found, runs = with_users(self.config, {channel}), self._flow.wired
        again = partial(assemble, self._files.name, self.config, self._files.system, found, runs)
        try:
            self.reopenings.begin(channel, runs, again)
        except StorageError as e:
            failed.refused(channel, e)
