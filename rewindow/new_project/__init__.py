"""Creates a project for a new source: its columns, its stream, a first application and suite.

sample.py    the first rows of a file columns.py   what each column is, and why stream.py    which
column is the arrival, which the key, how wide a window is, and why files.py     the texts of
rewindow.toml, the application and the suite; writing them
"""
