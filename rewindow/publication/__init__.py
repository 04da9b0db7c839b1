"""Publication: replays made visible, taken back, and compared; pinned reading. Certificates need no JVM."""
