"""Gap reports: rows, values and arrivals that are missing from a stream, by event time and by
arrival time.
"""
