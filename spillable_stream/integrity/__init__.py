"""Verifies that a channel's files are what was written, and repairs them if they are not."""
