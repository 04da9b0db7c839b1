"""Frame operators for common tasks, which applications can use in `rewindow.toml` without code."""
