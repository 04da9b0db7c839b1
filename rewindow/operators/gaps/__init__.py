"""What is missing from a stream, on both clocks: gaps in event time, nulls, lulls
(docs/rules/heartbeat.md, part 2).
"""
