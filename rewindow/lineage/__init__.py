"""Finds out which publications have read which windows."""
