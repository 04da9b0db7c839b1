"""Runs new code alongside the published code, to compare results and to check determinism."""
