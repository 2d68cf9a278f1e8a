"""The OpenAI-compatible server: one engine thread, pure translation of the wire format, ASGI routes."""
