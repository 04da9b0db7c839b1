"""Expected times of rows: grids, calendars and opening hours, for gap filling and gap reports."""
