"""Spark: session, settings, jars, Java, frames, digests, and the common part of jobs. Nothing here
depends on replays.
"""
