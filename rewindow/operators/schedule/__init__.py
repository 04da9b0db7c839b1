"""When rows are expected: grids, calendars and opening hours. Gap filling and gap reports use
it.
"""
