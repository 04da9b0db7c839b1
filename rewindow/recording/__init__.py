"""Recording: a source's tuples into a recorded stream, window by window.

sources             a module each, found by its format: the parts of a source, what is new of them, rows with a position
source_rows         rows into scratch files where Spark cannot read them itself, in bounded memory
tuples              types, arrival, window; what is malformed
stream              the stream's tables, and the settings stored with them (W4, W15)
arrivals            tuples of each window, from one pass: every question on numbers is answered from them
places              the file and the offset of every tuple, known from these numbers
malformed           so many malformed rows that a setting must be wrong
extent              how far a recording seals, and which windows stay open
sealing             sorted files, their commit, the seals; healing a run that died in between
late                what a sealed window did not have when it was sealed
reopening           late tuples taken into their windows, which get a new seal
quarantine          tuples that could not be taken, each once
progress            what whoever watches is told
record              all of it in order
inventory           the streams that are there, the rows of a window, deletion; no JVM
expected            columns of a stream before it is recorded; no JVM
dependents          who needs a stream: open replays, publications; no JVM
"""
