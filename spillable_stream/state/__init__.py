"""The queue as the log tells it: pure, so that it is tested without a disk."""
