#!/bin/sh
# Why this token: trace a run of the bundled model, show the text, then the tokens that a stage decided.
set -eu
trace=$(mktemp)
trap 'rm -f "$trace"' EXIT

gencli run --model tiny --seed 5 --max-tokens 40 --temperature 1.4 --top-k 40 --min-p 0.05 --quiet \
    --trace "$trace" "Once upon a time"
gencli explain "$trace"
gencli explain "$trace" --at 3
