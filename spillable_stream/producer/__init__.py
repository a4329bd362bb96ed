"""The asynchronous producer: send and forget, with nothing forgotten."""
