"""The command line: one entry point, the option parser, the commands, terminal output."""
