"""The command line: one file per command, each defining COMMAND."""
