#!/bin/sh
# Resume a killed batch in a loop. Its output is byte for byte that of an uninterrupted run.
set -eu
cd "$(mktemp -d)"
python -c '
import json

for number in range(40):
    print(json.dumps({"prompt": f"Once upon a time, {number}", "max_tokens": 20}))
' > prompts.jsonl

set -- gencli batch prompts.jsonl -q --seed 7 --no-timings --max-batch 2
"$@" -o quiet.jsonl

# The first run is killed after a few rows.
"$@" -o out.jsonl --keep-journal &
rows=0
while kill -0 $! 2> /dev/null && [ "$rows" -lt 5 ]; do
  [ -f out.jsonl.journal ] && rows=$(wc -l < out.jsonl.journal)
done
kill -9 $! 2> /dev/null || true
wait $! || true

# Exit code 7: some rows failed permanently, and are in the output as errors.
until "$@" -o out.jsonl --resume; do
  [ $? -eq 7 ] && break
  sleep 10
done
cmp quiet.jsonl out.jsonl
echo "$(wc -l < out.jsonl) rows, the same to the byte"
