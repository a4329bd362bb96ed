"""The command line: ``spillable VERB …``. Each module has the verbs that its name says.

The exit status is 0 if all is well, 1 if it is not, and 2 if that can't be told.
"""

from __future__ import annotations

import sys

from spillable_stream.cli import examine, metrics, top, ui
from spillable_stream.cli.app import app

__all__ = ["app", "examine", "main", "metrics", "top", "ui"]


def main() -> None:
    """Run the command line."""
    sys.exit(app())
