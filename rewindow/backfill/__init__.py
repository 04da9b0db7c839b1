"""Replays a range in steps, with a separate replay for each step."""
