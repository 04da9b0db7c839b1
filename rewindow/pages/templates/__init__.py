"""Templates, style and script of the pages.

This is a package, so that wheels include these files.
"""
