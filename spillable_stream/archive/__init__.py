"""Copies of channels: taken of live ones, kept as plain objects, and restored to channels."""
