#!/bin/sh
# A run that is killed goes on in a loop, and its output is that of a run that nobody has touched.
set -eu
cd "$(mktemp -d)"
python -c '
import json

for number in range(40):
    print(json.dumps({"prompt": f"Once upon a time, {number}", "max_tokens": 20}))
' > prompts.jsonl

set -- gencli batch prompts.jsonl -q --seed 7 --no-timings --max-batch 2
"$@" -o quiet.jsonl

# The first try is killed as soon as a few rows are finished.
"$@" -o out.jsonl --keep-journal &
rows=0
while kill -0 $! 2> /dev/null && [ "$rows" -lt 5 ]; do
  [ -f out.jsonl.journal ] && rows=$(wc -l < out.jsonl.journal)
done
kill -9 $! 2> /dev/null || true
wait $! || true

# 7 says that rows failed for good: they are in the output as errors, and once more would not help.
until "$@" -o out.jsonl --resume; do
  [ $? -eq 7 ] && break
  sleep 10
done
cmp quiet.jsonl out.jsonl
echo "$(wc -l < out.jsonl) rows, the same to the byte"
