#!/bin/sh
# The same seed gives the same text: in another process, and beside other prompts in one batch.
set -eu
alone=$(gencli run -q --model fake --seed 5 --allow-ids 97,98,99,100 --max-tokens 20 "one")
beside=$(gencli run -q --model fake --seed 5 --allow-ids 97,98,99,100 --max-tokens 20 "one" "two" "three")

echo "$beside"
case "$beside" in
  *"$alone"*) echo "The first text is the one that the prompt gave alone." ;;
  *) echo "The texts differ." >&2; exit 1 ;;
esac
