"""Changed configuration files of an agent, and what it would run by them."""

from __future__ import annotations

from collections.abc import Sequence

from spillable_stream.error_text import text_of
from spillable_stream.errors import OptionError, SpillableError
from spillable_stream.flow.assembly import Begins, assemble, tell_nobody
from spillable_stream.flow.changes import NOTHING, Changes, changes
from spillable_stream.flow.configuration.model import AgentConfig, Finding, Severity
from spillable_stream.flow.configuration_files import ConfigurationFiles, reasons_against, runnable
from spillable_stream.flow.wired import Wired
from spillable_stream.log_records import fields, log_of

__all__ = ["Reload"]

_log = log_of("spillable_stream.flow")


class Reload:
    """Reads an agent's files again; once.

    Args:
        files: the files.
        running: what runs of the agent.
        known: the findings in the files that it runs from.

    Attributes:
        running: as given.
        config: what the agent is by the files, once they are read.
        findings: what was found in them, likewise.
        changes: what has changed, likewise.
    """

    def __init__(self, files: ConfigurationFiles, running: AgentConfig, known: Sequence[Finding]) -> None:
        self.running: AgentConfig = running
        self._files, self._known = files, known
        self.config: AgentConfig = running
        self.findings: tuple[Finding, ...] = ()
        self.changes: Changes = NOTHING

    def assemble(self, before: Wired, begins: Begins = tell_nobody) -> Wired:
        """Return what the agent would run, not started.

        Args:
            before: what it runs.
            begins: is told what it reads, builds or opens before it does so.

        Raises:
            OptionError: the files' errors would cost something that runs, or a component can't be built.
            OSError: a file can't be read.
            SpillableError: a channel can't be opened.
            Exception: what a class of the user's raises.
        """
        begins("the files")
        loaded, name = self._files.load(), self._files.name
        config = runnable(loaded, name)
        if reasons := reasons_against(loaded, self.running, self._known):
            raise OptionError("; ".join(reasons))
        found = changes(self.running, config)
        wired = assemble(name, config, self._files.system, found, before, begins)
        self.config, self.findings, self.changes = config, loaded.findings, found
        return wired

    def say_refused(self, e: Exception) -> None:
        """Log why the files are refused."""
        name = self._files.name
        _log.error(
            "the changed configuration is refused, and the agent %s runs as it did: %s",
            name,
            text_of(e),
            exc_info=None if isinstance(e, (OSError, SpillableError)) else e,
            extra=fields(component=name),
        )

    def say_taken(self) -> None:
        """Log the new errors in the files, and what has changed."""
        for finding in self.findings:
            if finding.severity is Severity.ERROR and finding not in self._known:
                _log.error("%s", finding, extra=fields(component=finding.component or None, file=finding.file))
        if self.changes:
            name = self._files.name
            _log.info(
                "the configuration of the agent %s has changed: %s", name, self.changes, extra=fields(component=name)
            )
