#!/bin/sh
# Scores of texts: perplexity, a comparison of choices, the same under a chain, a run that goes on after a stop.
set -eu
cd "$(mktemp -d)"
cat > rows.jsonl <<'END'
{"text": "Once upon a time, a kind fox named Clover lived in a house by the river.", "kind": "story"}
{"text": "One day she found a mirror.", "kind": "story"}
{"text": "Colourless green ideas sleep furiously.", "kind": "other"}
{"id": "town", "context": "Brindle is", "choices": [" a town.", " a fox and a bird.", " Biscuit."]}
END

gencli score --model tiny --group-by kind rows.jsonl

# As if the tokens had been chosen: the ban leaves no sum, and the stage that bans is named.
gencli score -q --model tiny --mode processed --ban " fox" --tokens 0 --format jsonl rows.jsonl | grep -o '"banned_by": "[a-z]*"'

# A table; the questions are made by a template.
printf 'q,choices\nBrindle is,"["" a town."", "" a fox.""]"\n' |
    gencli score -q --model tiny --input-format csv --template '{{ q }}' --format csv

# Every scored row is safe in scores.csv.journal until scores.csv is complete.
gencli score --model tiny rows.jsonl -o scores.csv --resume
cut -d, -f1-7 scores.csv
