"""Explains each launch rule when an application violates it: what the rule means, and how to
comply.
"""

from __future__ import annotations

ADVICE = {
    "H17": "The name becomes the name of a folder and a table, so it may only contain letters, "
    "digits and _. Rename it.",
    "O9": "Tuples enter an application only through recorded streams: feed the operator from "
    "app.input(STREAM).",
    "O10": "A module is fed like an operator, by the parameters of its function. Rename the port "
    "in app.module.",
    "O12": "Ports are identified by their names. Name the ports in `inputs` and `outputs` of the "
    "operator's class, and use these names in app.add.",
    "O13": "The emitted columns must match, by name and type, the columns that the reader "
    "requires, and some column names are reserved for stored tables. Cast or rename the column "
    "in the operator that emits it (for a stream: with `columns` in rewindow.toml), or change "
    "the schema of the port.",
    "O14": "An input port without tuples computes nothing. Feed it in app.add(NAME, OPERATOR, "
    "PORT=STREAM), or declare it with InputPort(..., optional=True).",
    "O15": "The results of this operator are computed but never read. Feed another operator from "
    "the port, or make it an output with app.output.",
    "O18": "A port feeds one output, so that a stream has one name. Remove one of the two "
    "outputs, or publish another port.",
    "O48": "Each operator, stream and output needs a unique name, which must differ from the "
    "names of reserved tables. Rename one of the two.",
    "O50": "A stream needs a source that writes it and an operator or output that reads it. "
    "Connect the missing end, or remove the stream.",
    "O51": "An operator cannot wait for its own results of the same window. Add a DelayOperator "
    "to the cycle, which passes its tuples on to the next window, or keep these values in a "
    "state.",
    "O103": 'Leave it out, or set locality="apart" to compute the operator in a separate pass.',
    "O52": "A delay operator shifts tuples by windows: by one, or by the number in its property "
    "`windows`.",
    "O53": "The value violates a constraint of the property. Use a value that is allowed.",
    "O60": "The suite checks the output before it is published, so the suite itself is checked "
    "before anything runs. Correct the suite in the folder of expectations.",
    "O28": "Properties and attributes are set in code, in rewindow.toml below "
    "[applications.NAME.operators.OPERATOR], or by --set operator.property=value. Correct the "
    "name or the value there.",
    "R13": "The method was renamed, and the old name is never called.",
    "R20": "After a loss the state must not start inside an application window. Set "
    "checkpoint_windows of the operator to a multiple of its application_windows.",
    "R39": "Downstream of an operator that may lose windows, no stricter guarantee is possible. "
    "Set the stricter mode for the feeding operator too, or remove it from the other.",
    "R85": "The tolerance is the largest difference at which two floating-point values count as "
    "equal. Leave it out, or use a small number such as 1e-9.",
    "W3": 'Windows are time slices of equal width, at least 1 ms. Set the width as in window="5 '
    'seconds".',
    "W4": "The settings of recorded tuples cannot change. Restore the setting, or record the "
    "stream again.",
    "W15": "Windows are joined by their ids, so the application and its inputs must have the "
    "same width and origin. Use the values of the streams for the application.",
    "W18": "An application window combines several windows into one. Leave it out, or use a "
    "whole number from 1 on.",
    "W30": "A window that slides further than its length would skip windows. Slide by less, or "
    "leave it out.",
    "W50": "The operator declares that its state is invalid inside an application window. Set "
    "its checkpoint_windows to a multiple of its application_windows.",
    "W56": "This is the number of windows between checkpoints. Leave it out, or use a whole "
    "number from 1 on.",
    "W65": "A checkpoint depends on the properties that it was computed with, so they must be "
    "stored. Add a @field_serializer for the property.",
    "X12": "Each operator has its own state and properties. Create a second instance.",
    "X40": "The operators of a cycle are called window by window in one pass. Make them tuple "
    "operators, and feed the cycle from a recorded stream or another operator.",
    "X44": "Tuples on a control or broadcast port go to every key range, but the key ranges of a "
    "cycle run in parallel. Feed the port from outside of the cycle, or use another kind of "
    "port.",
    "X43": "Only a recorded stream has an order. Set order_by to columns that order the tuples "
    "of a window, or feed the port from a recorded stream.",
    "X55": "For a tuple operator, set partitions=N if an input port has a key, and spread=N "
    "otherwise. Other operators have neither.",
    "O59": "A unifier merges partial results, so it needs one input port and one output port.",
    "O73": "Pass the unifier to the output port: OutputPort(SCHEMA, unifier=OPERATOR).",
    "O77": "Add a unifier to the output port, or divide the operator by a key.",
    "O85": "Leave the codec out, or choose one that supports the type of the key.",
    "O87": "A broadcast port needs another port that has a key. Declare a key for one.",
    "O90": "Declare the same codec for all ports that have a key.",
    "R100": "Define merge(self, one, other), which returns the combined state by field.",
    "X46": "Tuples that were sent to another system cannot be taken back when a replay recovers. "
    "Make the tuples an output with app.output and deliver the published windows, or collect "
    "them with a CollectOperator.",
    "X47": "A large state is stored in files by the hash of its key. Use columns of the state, "
    "and a number of buckets such as 16.",
    "X53": "A container is a part of the graph with one mode. It starts when the containers that "
    "it reads have ended. Leave `container` out of app.add, or choose containers that do not "
    "wait for each other.",
}
"""Rule number to its explanation; every rule that launch validation reports has one."""
