"""The verbs of the command line, one module each; cli.py connects them."""
