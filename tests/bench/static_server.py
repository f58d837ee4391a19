"""A Redfish service as the mockup servers of DMTF are: Python's own HTTP server, with bytes that were made before.

It has a thread for each connection, keeps connections open and holds the bytes in memory, which is kinder than theirs: they
serve one request at a time, and read and parse a file for each. static_server.py FOLDER CERTIFICATE PORT
"""

import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main():
    folder, certificate, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    bodies = {f"/{file.relative_to(folder)}": file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one write

        def do_GET(self):
            body = bodies.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("OData-Version", "4.0")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_):
            pass

    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print("ready", flush=True)
    server.serve_forever()


main()
