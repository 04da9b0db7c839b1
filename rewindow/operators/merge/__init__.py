"""Merge: combines streams with the same columns into one, in the order of event time."""
