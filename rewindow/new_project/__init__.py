"""Creates a project for a new source: its columns, its stream, a first application and suite.

sample.py    reads a sample of the rows of a file
columns.py   detects the type of each column, with the reason
stream.py    proposes the columns of arrival and key and the width of windows, with the reasons
files.py     writes rewindow.toml, the application and the suite
"""
