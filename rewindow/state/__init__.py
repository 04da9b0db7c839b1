"""Where operator state lives between commit groups."""
