"""Any sequence of operations on several handles of a channel in an object store, beside lists."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from spillable_stream import Channel
from spillable_stream.objects.store import Store
from tests.channel.test_machine import ChannelMachine
from tests.support.examples import examples
from tests.support.object_channels import URL, kill, stores_in_memory
from tests.support.store_limits import AT_ONCE, set_limits

OPTIONS: dict[str, Any] = {
    "keep_alive": 0,
    "overflow_timeout": 0,
    "max_inline_bytes": 700,
    "commit_interval": 0,
    "gc_delay": 0,
    "checkpoint_on_close": False,
}


class ObjectMachine(ChannelMachine):
    """The same with slots, owners in the log, and a hint that is damaged instead of a head."""

    @staticmethod
    def seen_by(store: Store) -> Store:
        """Return the store as a handle sees it."""
        return store

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stores = self.stack.enter_context(stores_in_memory(self.seen_by))
        set_limits(self.stack.enter_context(pytest.MonkeyPatch.context()), **AT_ONCE)

    def open(self) -> Channel:
        return Channel(URL, overflow_capacity=self.capacity, **OPTIONS)

    def let_go(self, channel: Channel) -> None:
        kill(channel)
        self.handles.remove(channel)

    @rule(clean=st.booleans())
    def damage_head(self, clean: bool) -> None:
        """Close or kill everything, and lose the hint, or what it says."""
        self.end_handles(clean)
        if URL in self.stores:
            if clean:
                self.stores[URL].objects.pop("hint", None)
            else:
                self.stores[URL].objects["hint"] = b'{"tail": 1, "checkpoint": 1}'

    def teardown(self) -> None:
        super().teardown()
        self.stack.close()


TestObjectMachine = ObjectMachine.TestCase
TestObjectMachine.settings = settings(max_examples=examples(120), stateful_step_count=60)
