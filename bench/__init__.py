"""Benchmarks: every claim of speed, beside an alternative in the same run."""
