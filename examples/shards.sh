#!/bin/sh
# One batch as three shards, which may run on three machines. Together they have the same bytes as the batch.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for name in Mila Tom Ada Ben Zoe Sam Eva; do
  echo "{\"prompt\": \"One day, $name\"}"
done >prompts.jsonl

# The draws are derived from the row index, so --seed has to be the same. On three machines: one line each.
# A killed shard continues with --resume; finished rows are not generated again.
flags="--seed 7 --max-tokens 16 --no-timings -q"
for part in 0 1 2; do
  gencli batch prompts.jsonl -o "part.$part.jsonl" --shard "$part/3" --resume $flags
done

# Shard i has the rows i, i + 3, i + 6, ... in order: interleave the shards to join them.
paste -d '\n' part.0.jsonl part.1.jsonl part.2.jsonl | grep . >all.jsonl

gencli batch prompts.jsonl -o whole.jsonl $flags
cmp all.jsonl whole.jsonl
wc -l part.*.jsonl all.jsonl
