#!/bin/sh
# A processor of transformers as a stage; what its constructor takes is what --stage takes.
set -eu
gencli run --plugin transformers:NoRepeatNGramLogitsProcessor --stage no_repeat_n_gram:ngram_size=2 \
  -t 0 --max-tokens 40 "Once upon a time"
