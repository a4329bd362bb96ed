"""What the parts of a flow may fail with."""

from __future__ import annotations

__all__ = ["FAILURES"]

FAILURES = (Exception, SystemExit)
"""What a source, a sink or an interceptor may fail with: a class of the user's may call ``sys.exit()``."""
