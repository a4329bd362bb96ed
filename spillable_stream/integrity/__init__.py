"""Whether a channel's files are what was written, and how to go on when they are not."""
