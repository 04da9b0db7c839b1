"""Spark: session, settings, jars, Java, frames, digests, and the common part of jobs.

This package does not depend on replays.
"""
