#!/bin/sh
# A server on a free port, asked with curl: chats, a stream, a completion whose seed gives the text of a run.
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

ask chat/completions '{"messages": [{"role": "user", "content": "Who owns Biscuit?"}], "temperature": 0}'
ask chat/completions '{"messages": [{"role": "user", "content": "Hello!"}], "seed": 1, "max_tokens": 8,
    "stream": true, "stream_options": {"include_usage": true}}'

ask completions '{"prompt": "Once upon a time", "seed": 7, "top_p": 0.9, "max_tokens": 20}' |
    python -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["text"])'
gencli run -q --seed 7 --top-p 0.9 --max-tokens 20 "Once upon a time"

ask completions '{"prompt": "Once upon a time", "seed": 7, "max_tokens": 4, "echo": true, "logprobs": 2}'
ask chain '{"preset": "story", "top_k": 40}'
ask completions '{"prompt": "a", "top_kk": 40}'
