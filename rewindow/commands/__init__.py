"""The verbs of the command line, a module each; cli.py wires them."""
