"""Tests of latencies."""
