#!/bin/sh
# Thinking, then JSON: the text is free up to the marker, and the document after it is the result.
# The bundled model does not think; its first line takes that place.
set -eu
gencli run --seed 1 -t 0.5 --constrain-after '. ' --json-schema 'name, age int' --format json \
  "Once upon a time" | python -c '
import json, sys

record = json.load(sys.stdin)
print("thinking:", record["thinking"].strip())
print("result:  ", record["text"])
'
