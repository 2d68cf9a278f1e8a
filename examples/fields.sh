#!/bin/sh
# Values by field: in one JSON document the names are drawn warm, the work is the most likely word.
set -eu
preset=$(mktemp)
trap 'rm -f "$preset"' EXIT
cat > "$preset" <<'YAML'
json_schema: '{"type": "object", "required": ["work", "names"], "properties": {
  "work": {"type": "string", "pattern": "^[a-z]{3,8}$"},
  "names": {"type": "array", "minItems": 2, "maxItems": 2,
            "items": {"type": "string", "pattern": "^[A-Z][a-z]{2,8}$"}}}}'
json_whitespace: 0
grammar_backend: llguidance
temperature: 0.7
fields:
  /work: greedy
  /names/*: {temperature: 1.5, min_p: 0.05}
YAML
gencli run --preset "$preset" --seed 3 -n 3 "Nora and her friends"
# One stage on the command line.
gencli run --preset "$preset" --seed 3 --stage 'top_k:k=1,when={"path": "/names/0"}' "Once upon a time"
