#!/bin/sh
# Classify the rows of a CSV: a template makes the prompt, the answer is one of the choices.
set -eu
cd "$(mktemp -d)"
cat > mail.csv <<'CSV'
number,subject
17,Mia is a 34 year old baker from Oslo.
18,Tom has a brown dog named Rex.
19,Ada bought 3 apples for 12 coins.
CSV

gencli batch mail.csv -o sorted.csv -q -t 0 --id-column number --keep-input \
  --template 'Sentence: {{ subject }}
JSON:' \
  --choice ' {"name' --choice ' {"pet' --choice ' {"buyer'

# Columns: id, text, and the input's columns as input.NAME.
python -c '
import csv

kinds = {"name": "person", "pet": "animal", "buyer": "purchase"}
for row in csv.DictReader(open("sorted.csv")):
    print(row["id"], kinds[row["text"].split("\"")[1]], row["input.subject"], sep="\t")
'
