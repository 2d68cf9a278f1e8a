#!/bin/sh
# A server, asked with curl for structured answers: a JSON schema, a choice, a pattern, tools; and for tokens.
set -eu
log=$(mktemp)
gencli serve --model tiny --port 0 2> "$log" &
server=$!
trap 'kill $server 2> /dev/null || true; rm -f "$log"' EXIT
until url=$(sed -n 's/.* answers at //p' "$log") && [ -n "$url" ]; do
    kill -0 $server || { cat "$log"; exit 1; }
    sleep 0.2
done
ask() { curl -sSN "$url/$1" -H 'Content-Type: application/json' -d "$2"; echo; }

ask completions '{"prompt": "Sentence: Tom, 25, works as a baker in Oslo.\nJSON:", "temperature": 0, "max_tokens": 80,
    "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": {
        "type": "object", "required": ["name", "age"], "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}}}}'
ask completions '{"prompt": "Question: Is Brindle a town?\nAnswer:", "temperature": 0, "choice": [" yes", " no"]}'
ask completions '{"prompt": "A name and an age:", "seed": 2, "regex": " [A-Z][a-z]+, [0-9]{2}", "max_tokens": 40}'

tools='[{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"]}}}]'
ask chat/completions "{\"messages\": [{\"role\": \"user\", \"content\": \"Add.\"}], \"seed\": 1,
    \"tools\": $tools, \"tool_choice\": \"required\", \"parallel_tool_calls\": false}"

ask tokenize '{"prompt": "Once upon a time", "return_token_strs": true}'
ask detokenize '{"tokens": [480, 481, 265, 464]}'
