"""A proxy that spoils what a good service says: the planted fault of suites that drive peers."""

import contextlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def tampered(endpoint, replace, pardon=False):
    """Puts a plain HTTP proxy before an `Endpoint`, and yields it with the proxy's address.

    Replaces what matches the first of the pair `replace` by the second in every body; with `pardon`, answers 200 where
    the service refused with 400.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0)) or None
            kept = ("authorization", "x-auth-token", "content-type", "if-match", "odata-version")
            headers = {name: value for name, value in self.headers.items() if name.lower() in kept}
            answer = endpoint.client.request(
                self.command, endpoint.url + self.path, data=body, headers=headers, timeout=30, allow_redirects=False
            )
            text = re.sub(*replace, answer.text).encode()
            self.send_response(200 if pardon and answer.status_code == 400 else answer.status_code)
            for name in ("content-type", "location", "x-auth-token", "etag", "allow", "odata-version"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = forward

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield endpoint.at(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
