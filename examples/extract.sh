#!/bin/sh
# Sentences to records with a JSON schema. The output is a valid document, or the exit code is not 0.
set -eu
cat > "${TMPDIR:-/tmp}/person.json" <<'SCHEMA'
{
  "type": "object",
  "properties": {
    "name": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "job": {"type": "string"},
    "city": {"type": "string"}
  },
  "required": ["name", "age", "job", "city"]
}
SCHEMA

gencli run -t 0 --json-schema "${TMPDIR:-/tmp}/person.json" -q \
  'Sentence: Nora is a 41 year old pilot from Quito.
JSON:' | python -c 'import json, sys; print(json.load(sys.stdin)["age"] + 1)'

# --select prints a part of the document, by its JSON pointer.
gencli run -t 0 --json-schema 'name, age int, job, city' --select /job -q \
  'Sentence: Nora is a 41 year old pilot from Quito.
JSON:'
