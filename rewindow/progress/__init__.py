"""Events that report the progress of long-running commands."""
