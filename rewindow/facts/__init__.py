"""Facts about windows: seals, counts and losses, and which rows readers see."""
