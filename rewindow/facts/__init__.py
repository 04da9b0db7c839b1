"""Facts about windows: seals, counts and losses. They determine which rows readers see."""
