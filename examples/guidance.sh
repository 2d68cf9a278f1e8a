#!/bin/sh
# Guidance moves away from a negative prompt, contrastive decoding from a weaker model.
set -eu
prompt=$(printf 'Mood: sad\nStory:')
options="--model tiny --dtype float32 --seed 3 --max-tokens 40"

plain=$(gencli run -q $options "$prompt")
same=$(gencli run -q $options --guidance 1 --negative "Story:" "$prompt")
guided=$(gencli run -q $options --guidance 2.5 --negative "Story:" "$prompt")
drafted=$(gencli run -q $options --guidance 2.5 --negative "Story:" --draft tiny-draft "$prompt")
contrasted=$(gencli run -q $options --contrast tiny-draft "$prompt")

printf 'plain:      %s\nguided:     %s\ncontrasted: %s\n' "$plain" "$guided" "$contrasted"
[ "$plain" = "$same" ] && [ "$guided" = "$drafted" ] && [ "$plain" != "$guided" ] ||
  { echo "The texts are not as they should be." >&2; exit 1; }
