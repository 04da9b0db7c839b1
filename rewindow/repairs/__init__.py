"""Finds the windows that must be replayed after an input changed, and replays them."""
