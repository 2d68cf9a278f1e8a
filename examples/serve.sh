#!/bin/sh
# A server on a free port: a completion, a streamed answer, a structured answer, the chain of a request.
set -eu
log=$(mktemp)
gencli serve --model tiny --port 0 2> "$log" &
server=$!
trap 'kill $server 2> /dev/null || true; rm -f "$log"' EXIT
until url=$(sed -n 's/.* answers at //p' "$log") && [ -n "$url" ]; do
    kill -0 $server || { cat "$log"; exit 1; }
    sleep 0.2
done
json='Content-Type: application/json'

curl -sS "$url/completions" -H "$json" \
    -d '{"prompt": "Once upon a time", "seed": 7, "top_p": 0.9, "max_tokens": 40}'
echo
curl -sSN "$url/chat/completions" -H "$json" \
    -d '{"messages": [{"role": "user", "content": "Hello!"}], "seed": 1, "max_tokens": 8, "stream": true}'
curl -sS "$url/chat/completions" -H "$json" \
    -d '{"messages": [{"role": "user", "content": "Which colour?"}], "seed": 1, "guided_choice": ["red", "green"]}'
echo
curl -sS "$url/chain" -H "$json" -d '{"preset": "story", "top_k": 40}'
echo
curl -sS "$url/completions" -H "$json" -d '{"prompt": "a", "top_kk": 40}'
echo
