"""Defines the contents of rewindow.toml, and the errors about invalid settings."""
