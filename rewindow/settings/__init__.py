"""What rewindow.toml may contain, and the errors about a wrong setting."""
