"""One module for each command; its helper modules and views are beside it."""
