"""Identity of processes, ending processes with their parent, and file locks."""
