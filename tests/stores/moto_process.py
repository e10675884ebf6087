"""Moto as a server: says its port, and ends when its standard input does.

It answers one request at a time, since it looks for a file and writes it in two steps: what S3
decides at once, ``If-None-Match``, is decided at once here too. Every request is one of S3: Moto
would look through its folders for each, which takes a third of an answer's time.
"""

from __future__ import annotations

import io
import logging
import sys
import threading

from moto.moto_server import threaded_moto_server
from moto.server import ThreadedMotoServer

whole = threaded_moto_server.DomainDispatcherApplication


class OneAtATime(whole):
    """The application, for one request after the other, each read first."""

    turn = threading.Lock()
    found = None

    def get_application(self, environ):
        self.found = self.found or super().get_application(environ)
        return self.found

    def __call__(self, environ, start_response):
        length = environ.get("CONTENT_LENGTH")
        if length:
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with self.turn:
            return [b"".join(super().__call__(environ, start_response))]


threaded_moto_server.DomainDispatcherApplication = OneAtATime
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
