#!/bin/sh
# Other ways for a story: trace a run of the bundled model, continue it from token 12, then from there again.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trace=$folder/trace.jsonl
tree=$folder/tree.jsonl

gencli run --model tiny --seed 5 --max-tokens 40 --temperature 1.4 --top-k 40 --min-p 0.05 --quiet \
    --trace "$trace" "Once upon a time"
gencli fork "$trace" --at 12 -n 2 --tree "$tree"
gencli fork "$trace" --at 12 --rank 2 --tree "$tree" --quiet > "$folder/second.txt"
gencli fork "$tree" --node 3 --at 20 -n 2 --quiet --format jsonl > "$folder/nodes.jsonl"
gencli fork show "$tree"
