"""Sums per key and window, and running totals of them in two other recovery modes."""

from __future__ import annotations

from totals import RunningTotal, SumPerKey

from rewindow.application import Application

app = Application("three_modes", window="1 hour", checkpoint_windows=6)
sums = app.add("sums", SumPerKey(), events=app.input("events"))
totals = app.add("totals", RunningTotal(), mode="at_least_once", sums=sums)
lossy = app.add("lossy", RunningTotal(), mode="at_most_once", sums=sums)
app.output("sums", sums, key=["key"])
app.output("totals", totals, key=["key"])
app.output("lossy", lossy, key=["key"])
