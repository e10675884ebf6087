"""Addresses that a server of ours listens on, and accepted host names.

**Rules.** A server on a loopback address answers only if the ``Host`` header names this computer:
so no page of a browser can read the answer through a name of its own (DNS rebinding).

References: RFC 9110, 7.2 "Host"; RFC 3986, 3.2.2 "Host".
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from holdfast.errors import ConfigError

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{0,5})?")
_LOCAL_NAMES: Final = frozenset({"localhost", "localhost."})
LISTEN: Final = "127.0.0.1:9318"
"""Where ``holdfast serve`` listens by default."""


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of ``--listen HOST:PORT``, IPv6 in brackets; else raise ConfigError."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    good = bare and (":" not in bare or bare != host) and port.isdecimal() and port.isascii()
    if not good or int(port) > 65535:
        raise ConfigError(
            f"--listen {text}: expected HOST:PORT, such as {LISTEN} or "
            f"[::1]:{LISTEN.rpartition(':')[2]}"
        )
    return bare, int(port)


def shown_address(host: str, port: int) -> str:
    """Format HOST:PORT as in a URL."""
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether an address is one of this computer alone; False for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_host(header: str | None) -> bool:
    """Return whether a Host header is one host and perhaps a port; HTTP/1.0 may send none."""
    return header is None or _HOST.fullmatch(header.strip()) is not None


def names_this_computer(header: str | None) -> bool:
    """Return whether a Host header is one that a local client sends; HTTP/1.0 may send none."""
    if header is None or not is_host(header):
        return header is None
    host = header.strip().lower()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    return host in _LOCAL_NAMES or is_loopback(host)
