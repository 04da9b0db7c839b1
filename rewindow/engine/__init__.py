"""Runs one attempt of a replay on Spark: takeover, warm-up, losses, commit groups."""
