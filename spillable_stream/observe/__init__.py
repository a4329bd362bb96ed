"""Channels looked at from outside: samples, rates, advice, and their export as metrics."""
