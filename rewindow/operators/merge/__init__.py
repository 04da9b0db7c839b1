"""Merge: streams of the same columns joined into one, in the order of event time
(rules/heartbeat.md H59).
"""
