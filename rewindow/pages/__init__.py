"""Pages about streams, replays and checks. Each is a self-contained HTML file."""
