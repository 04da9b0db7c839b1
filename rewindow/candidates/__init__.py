"""Runs new code alongside the published code: comparison and determinism."""
