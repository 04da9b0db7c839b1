"""Identifies processes, ends processes together with their parent, and locks files."""
