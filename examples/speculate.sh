#!/bin/sh
# Speculative decoding: a draft model proposes, the target model verifies. The same text in fewer passes.
set -eu
prompt="Once upon a time there was a small fox. The small fox"
options="--model tiny --dtype float32 --seed 3 --temperature 0.8 --max-tokens 60"

plain=$(gencli run -q $options "$prompt")
drafted=$(gencli run $options --draft tiny-draft --draft-tokens 4 "$prompt")
copied=$(gencli run $options --draft suffix --draft-tokens 4 "$prompt")

echo "$drafted"
[ "$plain" = "$drafted" ] && [ "$plain" = "$copied" ] || { echo "The texts differ." >&2; exit 1; }
echo "The text is the one without drafts."
