#!/bin/sh
# A change of a preset, judged before it is merged: the new values are found to cut variety by half.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf 'temperature: 1.0\nmin_p: 0.02\n' > "$work/story.yaml"
printf 'temperature: 1.0\nmin_p: 0.02\ntop_k: 3\n' > "$work/faster.yaml" # "40 or 3, who would notice?"
cat > "$work/prompts.txt" <<'END'
Once upon a time
One day, a little girl
The old dog
END

gencli compare --a "$work/story.yaml" --b "$work/faster.yaml" --model tiny --seed 7 --max-tokens 60 --quiet \
    --prompts "$work/prompts.txt" --max-tv 0.3 && echo "as before" || echo "exit code $?: not as before"

# The same values, written in another way, are the same.
gencli compare --a "$work/story.yaml" --b 'temperature=1 | min_p=0.02' --model tiny --seed 7 --max-tokens 60 \
    --quiet --prompts "$work/prompts.txt" --assert-equal --max-tv 0 > /dev/null && echo "equal"
