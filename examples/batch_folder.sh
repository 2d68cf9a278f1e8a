#!/bin/sh
# Summarise each file of a folder into a file of another folder. The bundled model summarises a sentence as a
# record; with another model use the template 'Summarise in one sentence: {{ prompt }}' and no schema.
set -eu
cd "$(mktemp -d)"
mkdir letters
echo 'Nora is a 41 year old pilot from Quito.' > letters/nora.txt
echo 'In Rome there is a nurse called Ada, aged 33.' > letters/ada.txt

cd letters
gencli batch ./*.txt -o ../summaries/ -q -t 0 --input-format document --id-column file \
  --template 'Sentence: {{ prompt | trim }}
JSON:' \
  --json-schema 'name, age int, job, city'

cd ../summaries
for file in *.txt; do
  printf '%s: ' "$file"
  cat "$file"
  echo
done
