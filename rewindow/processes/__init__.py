"""Identity of a process, its death with its parent, and file locks."""
