"""Templates, style and script of the pages; a package, so that a wheel takes them along."""
