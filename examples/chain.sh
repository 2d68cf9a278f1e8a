#!/bin/sh
# A chain in another order: the table of its stages, which loads no model, then a run.
set -eu
set -- -t 1.2 --min-p 0.05 --top-k 40 --repetition-penalty 1.1 --chain "penalties,min_p,top_k,temperature"

gencli run "$@" --show-chain
gencli run "$@" --seed 3 --max-tokens 20 "The old baker"
