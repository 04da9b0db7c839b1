"""Templates, style and script of the pages. It is a package, so that wheels include it."""
