#!/bin/sh
# One batch as three, each of which may run on a machine of its own; together they are the whole, byte for byte.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for name in Mila Tom Ada Ben Zoe Sam Eva; do
  echo "{\"prompt\": \"One day, $name\"}"
done >prompts.jsonl

# The draws are keyed by the row, so --seed has to be the same everywhere. On three machines: one line each.
# A shard that is killed goes on with --resume; what it had finished is not made again.
flags="--seed 7 --max-tokens 16 --no-timings -q"
for part in 0 1 2; do
  gencli batch prompts.jsonl -o "part.$part.jsonl" --shard "$part/3" --resume $flags
done

# Shard i has the rows i, i + 3, i + 6, ... in their order: taking turns puts them together.
paste -d '\n' part.0.jsonl part.1.jsonl part.2.jsonl | grep . >all.jsonl

gencli batch prompts.jsonl -o whole.jsonl $flags
cmp all.jsonl whole.jsonl
wc -l part.*.jsonl all.jsonl
