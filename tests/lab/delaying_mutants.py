"""Mutants of the side files, of deliveries, and of what expires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.deliveries import Deliveries, _Deliver
from spillable_stream.engine.local.staged_delays import FileStaging
from spillable_stream.engine.requests import Request
from spillable_stream.engine.take_requests import Prepare, Take
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.storage.file import File
from tests.lab.patching import Patch, patch

__all__ = ["DELAYING_MUTANTS"]


def register_before_the_sync() -> list[Patch]:
    """A COMMIT names delayed events that are not durable."""

    def make(real: Any) -> Any:
        def write(self: DelayedFiles, writes: Any) -> None:
            with mock.patch.object(File, "sync", lambda self: None):
                real(self, writes)

        return write

    return [patch(DelayedFiles, "write", make)]


def name_before_the_sync() -> list[Patch]:
    """A COMMIT names the staged files of a large put whose delayed events are not durable."""

    def make(real: Any) -> Any:
        def finish(self: FileStaging) -> Any:
            with mock.patch.object(File, "sync", lambda self: None):
                return real(self)

        return finish

    return [patch(FileStaging, "finish", make)]


def deliver_in_two_steps() -> list[Patch]:
    """Events enter the order by one commit, and wait no more by the next one."""

    class Noted(Request):
        def __init__(self, delivered: Any) -> None:
            self._delivered = delivered

        def size_bytes(self) -> int:
            return 4096

        def plan(self, plan: AppendPlan) -> CommitResult:
            tx = plan.new_transaction()
            plan.commit("put", 0, tx, plan.next_id, delivered=self._delivered)
            return CommitResult(tx)

    def make(real: Any) -> Any:
        def append_alone(self: Appender, request: Request) -> CommitResult:
            if not isinstance(request, _Deliver):
                return real(self, request)  # type: ignore[no-any-return]
            delivered, request.delivered = request.delivered, []
            result: CommitResult = real(self, request)
            real(self, Noted(delivered))
            request.delivered = delivered
            return result

        return append_alone

    return [patch(Appender, "append_alone", make)]


def remove_a_side_file_early() -> list[Patch]:
    """A side file is removed before its last events are in the log."""

    def make(real: Any) -> Any:
        def _runs(self: Deliveries, places: Any, waiting: Any) -> Any:
            runs = real(self, places, waiting)
            for run in runs:
                if not run.next_ms:
                    self.files.remove(waiting[run.file])
            return runs

        return _runs

    return [patch(Deliveries, "_runs", make)]


def pass_over_in_silence() -> list[Patch]:
    """A take does not say which of its events had expired: a retry judges anew, and nobody counts them."""

    def make(real: Any) -> Any:
        def plan(self: Any, plan: AppendPlan) -> CommitResult:
            self.expired = []
            result: CommitResult = real(self, plan)
            return result

        return plan

    return [patch(Prepare, "plan", make), patch(Take, "plan", make)]


DELAYING_MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    f.__name__.replace("_", " "): f
    for f in (
        register_before_the_sync,
        name_before_the_sync,
        deliver_in_two_steps,
        remove_a_side_file_early,
        pass_over_in_silence,
    )
}
