"""Pages about streams, replays and checks; plain HTML that needs no other file."""
