"""Pages about streams, replays and checks, each a self-contained HTML file."""
