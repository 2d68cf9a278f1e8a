#!/bin/sh
# A tool call: the name is one of the tools, the arguments are valid for the tool's schema.
set -eu
tools=$(mktemp)
trap 'rm -f "$tools"' EXIT
cat > "$tools" <<'JSON'
[
  {"type": "function", "function": {
    "name": "add_person",
    "description": "Add a person to the list.",
    "parameters": {
      "type": "object",
      "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150}
      },
      "required": ["name", "age"],
      "additionalProperties": false
    }
  }}
]
JSON
gencli run -q -t 0 --tools "$tools" --tool-choice required --format json \
  'Sentence: Nora is a 41 year old pilot from Quito.
JSON:' | python -c '
import json, sys

(call,) = json.load(sys.stdin)["parsed"]
print("call", call["name"], "with", sorted(call["arguments"]))
'
