#!/bin/sh
# Many prompts in one process and one batch: a JSON line for each, then a loop over the lines.
set -eu
gencli run -q -t 0 --stop "." --max-tokens 24 --format jsonl "The fox" "The baker" "The mayor" |
while read -r line; do
  printf '%s' "$line" | python -c 'import json, sys; row = json.load(sys.stdin); print(row["id"], row["prompt"] + row["text"])'
done
