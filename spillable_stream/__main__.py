"""``python -m spillable_stream``: the command line."""

from __future__ import annotations

import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line. Ctrl-C amid its imports, which come behind those of the package, shows no traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # and not ignored, as in the background of a script
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from spillable_stream.cli import main as run
    finally:
        signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
