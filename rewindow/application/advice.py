"""What somebody who meets a rule for the first time is told beside its violation: what it means,
and what to do.
"""

from __future__ import annotations

ADVICE = {
    "H17": "The name becomes a folder and a table, so it has letters, digits and _ only. Rename "
    "it.",
    "O9": "Tuples enter an application through recorded streams only: feed the operator from "
    "app.input(STREAM).",
    "O10": "A module is fed like an operator, by the parameters of its function. Rename the one in "
    "app.module.",
    "O12": "A port is known by its name within its operator. Name the ports in `inputs` and "
    "`outputs` of its class, "
    "and use these names in app.add.",
    "O13": "What a port emits must have the columns, by name and type, that whatever reads it asks "
    "for; and a stored "
    "table has a few columns of its own. Cast or rename the column where it is made (of a stream: "
    "`columns` in "
    "rewindow.toml), or change the schema of the port.",
    "O14": "An input port without tuples computes nothing. Feed it in app.add(NAME, OPERATOR, "
    "PORT=STREAM), or "
    "declare it with InputPort(..., optional=True).",
    "O15": "Results that nothing reads are computed in vain. Feed another operator from the port, "
    "or make it an "
    "output with app.output.",
    "O18": "A port feeds one output, so that a stream has one name. Drop one of the two, or "
    "publish a port of its "
    "own.",
    "O48": "Each operator, stream and output has a name of its own, other than those of the tables "
    "that are always "
    "there. Rename one of the two.",
    "O50": "A stream goes from something that writes it to something that reads it. Connect the "
    "end that is missing, "
    "or leave the stream out.",
    "O51": "An operator cannot wait for its own results of the same window. Let the cycle go "
    "through a DelayOperator, "
    "which hands its tuples to the next window, or keep what is handed on in a state.",
    "O103": 'Leave it out, or set locality="apart" to compute the operator in a separate pass.',
    "O52": "A delay operator shifts tuples by windows, by one unless its property `windows` says "
    "more.",
    "O53": "A property says within which bounds it works. Give it a value that is allowed.",
    "O60": "The suite judges the output before anybody may read it, so it is checked before "
    "anything runs. Mend the "
    "suite in the folder of expectations.",
    "O28": "Properties and attributes are set in code, in rewindow.toml below "
    "[applications.NAME.operators.OPERATOR], "
    "or by --set operator.property=value. Mend the name or the value there.",
    "R13": "The method has another name by now, and nothing would call the old one.",
    "R20": "After a loss the state must not begin inside an application window. Give the operator "
    "checkpoint_windows that are a multiple of its application_windows.",
    "R39": "Behind an operator that may lose windows nothing can promise more than that. Give the "
    "one that feeds the "
    "stricter mode too, or take the mode from the other.",
    "R85": "It says how close two floating-point values lie that count as equal. Leave it out, or "
    "write one such as "
    "1e-9.",
    "W3": 'Windows are slices of time of one width, from 1 ms on. Write it as in window="5 '
    'seconds".',
    "W4": "What is recorded stays as it is. Put the setting back, or record the stream anew.",
    "W15": "Windows are joined by their ids, so application and inputs have the same width and "
    "origin. Give the "
    "application those of its streams.",
    "W18": "An application window takes some windows as one. Leave it out, or write a whole number "
    "from 1 on.",
    "W30": "A window that slides further than it looks back would leave windows out. Slide by "
    "less, or leave it out.",
    "W50": "The operator says that its state makes no sense inside an application window. Give it "
    "checkpoint_windows "
    "that are a multiple of its application_windows.",
    "W56": "A checkpoint lies after so many windows. Leave it out, or write a whole number from 1 "
    "on.",
    "W65": "A checkpoint is bound to the properties that made it, so they must be written down. "
    "Give the property a "
    "@field_serializer.",
    "X12": "Each operator has a state and properties of its own. Make a second instance.",
    "X40": "The operators of a cycle are called window by window in one pass. Make them tuple "
    "operators, and feed the "
    "cycle from a recorded stream or another operator.",
    "X44": "What comes to a control port comes to every key range, and in a cycle they run beside "
    "each other. Feed it "
    "from outside of the cycle, or through a port that is none.",
    "X43": "Only a recorded stream has an order. Set order_by to columns that order the tuples of "
    "a window, or feed the port from a recorded stream.",
    "X55": "For a tuple operator, set partitions=N if an input port has a key, and spread=N "
    "otherwise. Other operators have neither.",
    "O59": "A unifier merges partial results, so it needs one input port and one output port.",
    "O73": "Pass the unifier to the output port: OutputPort(SCHEMA, unifier=OPERATOR).",
    "O77": "Add a unifier to the output port, or divide the operator by a key.",
    "O85": "Leave the codec out, or choose one that supports the type of the key.",
    "O87": "A broadcast port needs another port that has a key. Declare a key for one.",
    "O90": "Declare the same codec for all ports that have a key.",
    "R100": "Define merge(self, one, other), which returns the combined state by field.",
    "X46": "What has left for another system is not taken back when a replay recovers. Make the "
    "tuples an output with "
    "app.output and hand on what is published, or collect them with a CollectOperator.",
    "X47": "A large state is stored in files by the hash of its key. Name columns of the state, "
    "and a number of "
    "buckets such as 16.",
    "X53": "A container is a part of the graph with one mode. It starts when the containers that "
    "it reads have ended. Leave `container` out of app.add, or choose containers that do not wait "
    "for each other.",
}
"""Rule to advice; every rule that launch validation reports has one."""
