"""``python -m spillable_stream``: the command line."""

from spillable_stream.cli import main

if __name__ == "__main__":
    main()
