"""Event time: watermarks on the arrival clock, and which tuples are late
(docs/rules/event_time.md).
"""
