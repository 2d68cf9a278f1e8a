#!/bin/sh
# Train a draft head for the bundled model for a few seconds, look how often it is right, and draft with it.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
python scripts/train_heads.py "$out/head" --texts 60 --steps 40 --every 40 --batch 512

gencli doctor --model tiny --draft "$out/head"
gencli run --model tiny --draft "$out/head" --draft-tokens 3 -t 0 --max-tokens 60 "Once upon a time"
gencli run --model tiny -t 0 --max-tokens 60 -q "Once upon a time"  # the same text
