"""Puts that go straight to a channel; `Spool` offers the same for those that go through one."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from spillable_stream.channel.due_time import due_ms, require_delays
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.channel.stored_options import options_to_be
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.open_engine import port_of
from spillable_stream.engine.port import ChannelPort
from spillable_stream.format.batch import check_written_schema
from spillable_stream.option_types import ChannelOptions
from spillable_stream.quantities import Duration

__all__ = ["DirectPuts"]


class DirectPuts:
    """Puts that go straight to a channel."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._newest: tuple[int, pa.Schema] = -1, None  # of the schemas that were checked: its number, and the schema
        self._is_typed = False  # known with the first of them

    def put_transaction(self) -> PutTransaction:
        """Return a new put transaction, which has yet to begin.

        Raises:
            SchemaError: nothing can be put: an earlier version created the channel with a dictionary as a column.
        """
        engine = self._engine
        engine.prepare_put()
        number, schema = self._newest
        if number != len(engine.follower.state.schemas) - 1:
            number, schema = self._checked_schema()
        return PutTransaction(engine, schema, number, self._is_typed)

    def _checked_schema(self) -> tuple[int, pa.Schema]:
        schemas = self._engine.schemas()
        check_written_schema(schemas[-1])
        self._is_typed = self._engine.is_typed()
        self._newest = len(schemas) - 1, schemas[-1]
        return self._newest

    def due_ms(self, deliver_after: Duration | None, deliver_at: datetime | None) -> int:
        """Return when events are due that are put now, as `Channel.due_ms` does; it raises what that raises."""
        engine = self._engine
        found_ms = due_ms(deliver_after, deliver_at, engine.deliveries.clock_ms())
        if found_ms:
            schema = engine.schemas()[-1] if engine.is_typed() else None
            require_delays(engine.path, schema, has_disk=options_to_be(engine).overflow_capacity > 0)
        return found_ms

    def port(self) -> ChannelPort:
        """Return the port of the channel."""
        return port_of(self._engine)

    def options(self) -> ChannelOptions:
        """Return the stored options of the channel; it asks no store."""
        follower = self._engine.follower
        return (follower.state if follower.is_far else follower.follow()).options

    def flush(self) -> int:
        """Move what is in memory to disk, and return how many events that were.

        Raises:
            StorageError: the disk refused.
        """
        return self._engine.flush()
