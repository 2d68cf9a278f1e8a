#!/bin/sh
# Beam search: the most likely text, all beams with their scores; then the best of several samples.
set -eu
set -- -q --max-tokens 24 "Once upon a time"

gencli run "$@" --beams 4
gencli run "$@" --beams 4 --length-penalty 2 -n 2
gencli run "$@" --beams 3 --format json | grep '"score"'
gencli run "$@" --best-of 4 --seed 1
gencli run -q --beams 3 -n 2 --regex "(red|blue|green) (ball|boat)" "Her toy is a"
