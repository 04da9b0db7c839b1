"""Which publication read which window."""
