"""Event time: watermarks that are computed on the arrival clock, and the tuples that are late by
them.
"""
