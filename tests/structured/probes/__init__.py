"""One probe a keyword and shape of JSON Schema: a small schema, texts to accept and texts to refuse.

What is right is what jsonschema says of the instance; where it says nothing (formats, escapes in the text),
the probe says it itself.
"""
