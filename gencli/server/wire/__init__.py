"""The wire format as pure functions: JSON bodies to calls, events to replies. No engine, no HTTP library."""
