#!/bin/sh
# Two stop conditions: before a string, and after the first sentence, with its punctuation kept.
set -eu
set -- -q -t 0 --max-tokens 60 "Once upon a time"

gencli run "$@" --stop " forest"
gencli run "$@" --stop-regex "[.!?]" --include-stop
