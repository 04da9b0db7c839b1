"""Sources: what a stream is recorded from, a module each; `source` says what each answers."""
