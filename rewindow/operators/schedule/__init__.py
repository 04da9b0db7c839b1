"""The times at which rows are expected, for gap filling and gap reports: grids, calendars and
opening hours.
"""
