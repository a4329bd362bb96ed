"""Benchmarks: our side and the machine's own, in one process, interleaved."""
