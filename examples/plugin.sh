#!/bin/sh
# A stage from a file: checked with the contract kit, then used.
set -eu
plugin=examples/plugin_minimal/gencli_max_run.py

gencli stages check "$plugin"
gencli run --model fake --allow-ids 33,45 --logit-bias 33=9 --max-tokens 24 --seed 1 \
  --plugin "$plugin" --stage max_run=3 "Stop"
