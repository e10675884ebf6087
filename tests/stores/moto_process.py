"""Moto as a server: says its port, and ends when its standard input does."""

from __future__ import annotations

import logging
import sys

from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
