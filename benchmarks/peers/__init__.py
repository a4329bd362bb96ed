"""The products that the benchmarks and the power cuts compare with, each behind the same few calls."""
