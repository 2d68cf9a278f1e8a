#!/bin/sh
# Two ways to end a text: before a string, and at the end of the first sentence with its mark kept.
set -eu
set -- -q -t 0 --max-tokens 60 "Once upon a time"

gencli run "$@" --stop " forest"
gencli run "$@" --stop-regex "[.!?]" --include-stop
