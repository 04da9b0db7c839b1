"""Spark: session, settings, jars, Java, frames, digests, and what every job does; nothing that
knows a replay.
"""
