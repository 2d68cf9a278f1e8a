#!/bin/sh
# The chain of another system, and its settings as a preset.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# llama.cpp's order: cuts first, temperature last; the notes on stderr say what differs.
gencli run --compat llama-cpp --seed 7 --max-tokens 20 "Once upon a time"
# A value of yours stays above the profile's.
gencli run --compat mlx -t 0.7 --seed 7 --max-tokens 20 -q "Once upon a time"

# A command line of llama.cpp as a preset; what is no setting of sampling is named on stderr.
gencli config import llama-cli -m model.gguf --temp 0.7 --samplers "top_k;min_p;temperature" --top-k 30 \
    --min-p 0.1 -p "Once upon a time" > "$folder/mine.yaml"
cat "$folder/mine.yaml"
gencli run --preset "$folder/mine.yaml" --seed 7 --max-tokens 20 -q "Once upon a time"

# A preset of text-generation-webui: epsilon_cutoff counts in 1e-4 there.
printf 'temperature: 1.2\nmin_p: 0.02\nepsilon_cutoff: 3\nxtc_probability: 0.5\n' |
    gencli config import --from tgw -
