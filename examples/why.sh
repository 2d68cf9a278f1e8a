#!/bin/sh
# Why this token: the stages of a traced text, a stage that breaks a loop, and a token that was cut off.
set -eu
trace=$(mktemp)
trap 'rm -f "$trace"' EXIT

gencli run --model tiny --seed 5 --max-tokens 40 --temperature 1.4 --top-k 40 --min-p 0.05 --quiet \
    --trace "$trace" "Once upon a time"
gencli explain "$trace"
gencli explain "$trace" --at 3

# Without --dry-multiplier this text repeats a sentence; these are the tokens that DRY decided.
gencli run --model tiny --temperature 0 --ignore-eos --max-tokens 170 --dry-multiplier 0.8 --quiet \
    --trace "$trace" "The duck said no no no no"
gencli explain "$trace" --decided-by dry

# A cutoff removes a name: the same draw without top-k gives Lotte.
gencli explain --model tiny --seed 11 --temperature 1.2 --top-k 20 --max-tokens 3 --quiet --why Lotte --at 1 \
    "Once upon a time there was a girl named"
