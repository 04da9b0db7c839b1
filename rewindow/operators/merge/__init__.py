"""Merge: combines streams of the same columns into one, in the order of event time."""
