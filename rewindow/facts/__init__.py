"""Facts of windows: seals, counts, losses, and which rows readers see."""
