"""What a mask enforces of a schema, by probes of the back ends, and which back end takes it."""
