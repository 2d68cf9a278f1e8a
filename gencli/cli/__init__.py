"""The command line: one entry point, the option parser, the commands, and writing to the terminal."""
