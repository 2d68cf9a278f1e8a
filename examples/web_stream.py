"""Stream to a web page: the standard library's server and server-sent events. `--serve` keeps it running."""

import json
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

from gencli import LLM, Token

PAGE = b"""<!doctype html><input id=prompt value="Once upon a time"><button onclick="
  text.textContent = ''; const events = new EventSource('/stream?prompt=' + encodeURIComponent(prompt.value));
  events.onmessage = event => text.textContent += JSON.parse(event.data);
  events.onerror = () => events.close();">Write</button><p id=text></p>"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if url.path == "/stream" else "text/html")
        self.end_headers()
        if url.path != "/stream":
            self.wfile.write(PAGE)
            return
        with closing(llm.stream(parse_qs(url.query)["prompt"][0], max_tokens=60)) as events:
            for event in events:  # ends early if the page is closed
                if isinstance(event, Token):
                    self.wfile.write(f"data: {json.dumps(event.text)}\n\n".encode())


with LLM("tiny") as llm, HTTPServer(("127.0.0.1", 8000 if "--serve" in sys.argv else 0), Handler) as server:
    if "--serve" not in sys.argv:  # read one stream, then stop
        threading.Thread(target=server.handle_request).start()
        print(urlopen(f"http://127.0.0.1:{server.server_port}/stream?prompt=Once").read().decode())
    else:
        server.serve_forever()
