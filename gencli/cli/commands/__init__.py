"""One module for each command; its helper modules and views are in the same folder."""
