"""One module a command; what only shows a command's result stands beside it."""
