"""The command line: ``spillable VERB …``. Each module has the verbs that its name says.

The exit status is 0 if all is well, 1 if it is not, and 2 if that can't be told.
"""

from __future__ import annotations

import sys

from spillable_stream.cli import examine, flow_agent, flow_events, flow_graph, flow_test, flow_validate
from spillable_stream.cli.app import app

__all__ = ["app", "examine", "flow_agent", "flow_events", "flow_graph", "flow_test", "flow_validate", "main"]


def main() -> None:
    """Run the command line."""
    sys.exit(app())
