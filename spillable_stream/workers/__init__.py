"""Runs a function over a group's events until it is stopped."""
