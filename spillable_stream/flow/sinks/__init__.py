"""Sinks: where events go to."""
