"""Heartbeat: adds tuples with only a timestamp where a stream is silent."""
