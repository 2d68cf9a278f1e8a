#!/bin/sh
# A LogitsProcessor of transformers as a stage; --stage takes its constructor's arguments.
set -eu
gencli run --plugin transformers:NoRepeatNGramLogitsProcessor --stage no_repeat_n_gram:ngram_size=2 \
  -t 0 --max-tokens 40 "Once upon a time"
