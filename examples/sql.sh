#!/bin/sh
# A query by grammar (GBNF): only known tables and columns, so the query always runs.
set -eu
grammar=$(mktemp)
trap 'rm -f "$grammar"' EXIT
cat > "$grammar" <<'GBNF'
root   ::= "SELECT " column " FROM people" where? " ORDER BY " column ";"
where  ::= " WHERE " ("age " [<>=] " " [1-9] [0-9] | "city = '" city "'")
column ::= "name" | "age" | "city"
city   ::= "Oslo" | "Quito" | "Rome"
GBNF
query=$(gencli run -q --seed 3 --grammar "$grammar" "Question: Who is older than 30?
Query:")
echo "$query"
python - "$query" <<'PYTHON'
import sqlite3
import sys

people = sqlite3.connect(":memory:")
people.execute("CREATE TABLE people (name, age, city)")
people.executemany("INSERT INTO people VALUES (?, ?, ?)", [("Mia", 34, "Oslo"), ("Nora", 41, "Quito")])
print(people.execute(sys.argv[1]).fetchall())
PYTHON
