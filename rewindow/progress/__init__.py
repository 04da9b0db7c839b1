"""Events and progress that a watcher of a long verb receives."""
