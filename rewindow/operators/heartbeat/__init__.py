"""Heartbeat: tuples with nothing but a timestamp where a stream is silent (rules/heartbeat.md)."""
