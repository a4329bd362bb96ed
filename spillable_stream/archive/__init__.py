"""Copies of channels: made of live ones, kept as plain objects, and made channels again."""
