"""A Kerberos realm on loopback: MIT's KDC on a free port, with the keytabs of a broker and a user.

Where no KDC is installed, whoever needs it fails with what to install.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.cli.running import run_program
from tests.live.waiting import until

REALM = "HOLDFAST.TEST"
SERVICE = "kafka"
USER = f"reader@{REALM}"
SERVER = f"{SERVICE}/localhost@{REALM}"  # clients look the name of 127.0.0.1 up
INSTALL = (
    "this test needs a KDC and python-gssapi: `apt-get install krb5-kdc "
    "krb5-admin-server krb5-user libkrb5-dev`, then `pip install 'kafka-holdfast[kerberos]'`"
)
_SBIN = "/usr/sbin:/usr/local/sbin"  # not everybody's PATH has it


@dataclass(frozen=True)
class Kdc:
    """A running KDC."""

    folder: Path

    @property
    def krb5_conf(self) -> Path:
        return self.folder / "krb5.conf"

    def keytab(self, principal: str) -> Path:
        return self.folder / f"{principal.partition('@')[0].replace('/', '-')}.keytab"

    def keys(self, principal: str) -> list[str | bytes]:
        """The keys of a principal: their bytes, and as hexadecimal."""
        shown = run_program(tool("klist"), "-K", "-k", self.keytab(principal)).passed().out
        found = re.findall(r"\(0x([0-9a-f]{32,})\)", shown)
        assert found, shown
        return [*found, *map(bytes.fromhex, found)]

    @property
    def environment(self) -> Mapping[str, str]:
        """What leads a program to the realm, with a ticket cache of its own, which is empty."""
        return {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder / 'tickets'}",
        }


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")
    assert found is not None, f"no {name}: {INSTALL}"
    return found


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running_kdc(folder: Path) -> Iterator[Kdc]:
    """A realm with :data:`SERVER` and :data:`USER`."""
    assert find_spec("gssapi") is not None, INSTALL
    kdc, port = Kdc(folder), _free_port()
    kdc.krb5_conf.write_text(
        f"[libdefaults]\ndefault_realm = {REALM}\n"
        "dns_lookup_kdc = false\ndns_lookup_realm = false\n"
        "udp_preference_limit = 1\n"  # TCP alone
        f"[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{port}\n}}\n"
        f"[domain_realm]\nlocalhost = {REALM}\n127.0.0.1 = {REALM}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[realms]\n{REALM} = {{\n database_name = {folder}/principals\n"
        f" key_stash_file = {folder}/stash\n acl_file = {folder}/acl\n"
        f" kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n}}\n"
        f"[logging]\nkdc = FILE:{folder}/kdc.log\n"
    )
    environment = {**os.environ, **kdc.environment}

    def done(*words: object) -> None:
        run_program(tool(str(words[0])), *words[1:], **kdc.environment).passed()

    done("kdb5_util", "create", "-s", "-r", REALM, "-P", "of-the-database")
    for principal in (SERVER, USER):
        done("kadmin.local", "-q", f"addprinc -randkey {principal}")
        done("kadmin.local", "-q", f"ktadd -k {kdc.keytab(principal)} {principal}")
    process = subprocess.Popen(
        [tool("krb5kdc"), "-n"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        until(lambda: _listens(process, port), "the KDC", 60)
        yield kdc
    finally:
        process.kill()
        process.communicate()


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, process.communicate()
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
