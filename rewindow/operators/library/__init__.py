"""Frame operators for common work, which applications in `rewindow.toml` use without code."""
