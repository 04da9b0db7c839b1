"""Recording: a source's tuples into a recorded stream, window by window.

sources         reads a source: its parts, what is new in them, rows with a position; a module each
source_rows     rows into scratch files where Spark cannot read them, in bounded memory
tuples          types, arrival, window; which rows are malformed
stream          the stream's tables, and the settings stored with them (W4, W15)
arrival_counts  tuples of each window, from one pass: every question on numbers is answered from it
arrival_gaps    tuples so far from all others that a wrong clock must have sent them
file_layout     the file and the offset of every tuple, computed from these numbers
malformed       the share of malformed rows from which a setting must be wrong
seal_range      how far a recording seals, and which windows stay open
sealing         sorted files, their commit, the seals; sealing of a run that died in between
late            sealed windows that differ from the source: late tuples, changed windows
reopening       late tuples, or what the source has now, written into windows, with a new seal
quarantine      tuples that could not be recorded, each once
progress        progress events of a recording
record          all of it in order
inventory       existing streams, the rows of a window, deletion; no JVM
column_preview  columns of a stream before it is recorded; no JVM
"""
