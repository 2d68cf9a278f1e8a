#!/bin/sh
# Two settings at once: how many tokens are left to draw from, and how texts repeat themselves.
set -eu
gencli sweep --model tiny --seed 1 --vary temperature=0.4:1.6:0.4 --vary min_p=0,0.05,0.2 --first --show alive \
    "Once upon a time there was a"
gencli sweep --model tiny --seed 1 --vary repetition_penalty=1,1.1,1.3 -n 4 --max-tokens 60 "Once upon a time"
