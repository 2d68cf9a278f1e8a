#!/bin/sh
# Extract records from sentences into Parquet. Needs pyarrow: pip install 'gencli[batch]'
set -eu
cd "$(mktemp -d)"
cat > people.jsonl <<'JSONL'
{"sentence": "Nora is a 41 year old pilot from Quito.", "source": "a"}
{"sentence": "Tom, 25, works as a baker in Oslo.", "source": "b"}
{"sentence": "In Rome there is a nurse called Ada, aged 33.", "source": "c"}
JSONL

gencli batch people.jsonl -o people.parquet -q -t 0 --keep-input \
  --template 'Sentence: {{ sentence }}
JSON:' \
  --json-schema 'name, age int, job, city' --columns

python -c '
from pyarrow.parquet import read_table

for row in read_table("people.parquet", columns=["name", "age", "input.source"]).to_pylist():
    print(row["input.source"], row["name"], row["age"])
'
