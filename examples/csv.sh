#!/bin/sh
# A table from sentences: one compact JSON document a line, then comma-separated values.
set -eu
gencli run -t 0 -q --json-schema 'name, age int, job, city' --parsed \
  'Sentence: Nora is a 41 year old pilot from Quito.
JSON:' \
  'Sentence: Tom, 25, works as a baker in Oslo.
JSON:' \
  'Sentence: In Rome there is a nurse called Ada, aged 33.
JSON:' | python -c '
import csv, json, sys

rows = [json.loads(line) for line in sys.stdin]
table = csv.DictWriter(sys.stdout, rows[0])
table.writeheader()
table.writerows(rows)
'
