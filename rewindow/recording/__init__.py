"""Records the tuples of a source into a recorded stream, window by window.

sources         reads a source: its parts, what is new in them, rows with a position; a module each
source_rows     copies rows to scratch files if Spark cannot read the source directly
tuples          turns rows into tuples with types, arrival and window; finds malformed rows
stream          opens the stream's tables and checks the settings stored with them
arrival_counts  counts the tuples of each window in one pass over the source
arrival_gaps    finds tuples whose arrival is far from all others, probably from a wrong clock
file_layout     computes the file and the offset of every tuple from these counts
malformed       stops if the share of malformed rows suggests that a setting is wrong
seal_range      decides which windows are sealed and which stay open
sealing         writes and commits sorted files and seals; seals windows of a run that died
late            finds sealed windows that differ from the source: late tuples, changed windows
reopening       adds late tuples to sealed windows, or replaces their tuples, and reseals them
quarantine      stores tuples that could not be recorded, each once
progress        progress events of a recording
record          runs all steps in order
inventory       lists streams, shows the rows of a window, deletes streams; no JVM
column_preview  predicts the columns of a stream before it is recorded; no JVM

Rules: W4, W15
"""
