#!/bin/sh
# A result for programs: text, finish reason, counts and the chain, as JSON.
set -eu
gencli run --model fake --allow-ids 97,98,99 --seed 1 --max-tokens 8 -t 0.7 --format json "hi" |
  python -m json.tool
