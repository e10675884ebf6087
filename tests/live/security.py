"""Certificates, users and listeners of the run's broker: TLS, SCRAM, PLAIN and OAUTHBEARER."""

from __future__ import annotations

import base64
import gc
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives import serialization
from tests.cli.running import run_program
from tests.live.crew import QUICK, admin_of, fresh
from tests.token_server import AUDIENCE, ISSUER, write_keys

if TYPE_CHECKING:
    from tests.live.run_broker import RunBroker

from holdfast.local.broker import BrokerSettings
from holdfast.local.java import find_java

USER, PASSWORD = "alice", "alice-secret"
PLANTED = "planted-7f3a"
"""What no log may hold."""
QUOTED_USER, QUOTED_PASSWORD = "bob", f'it\'s "{PLANTED}"'
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
JWKS = "listener.name.oidc.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
_UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)

EPOCH_GROUPS = ("consumer", "share", "streams")
"""Groups whose broker sets the heartbeats: 5 s by default, and a test waits for several."""
RACK = "here"  # of the run's one broker
Rule = tuple[str, str, str]  # resource, its name or prefix*, operation
DENY = AclPermissionType.DENY


@dataclass(frozen=True)
class Security:
    """Where the files are; ``wrong_ca`` signed nothing here."""

    folder: Path
    ca: str
    wrong_ca: str
    keystore: str

    @classmethod
    def of(cls, folder: Path) -> Security:
        """Those of a run; whoever asks first makes them."""
        paths = [folder / name for name in ("ca.pem", "wrong-ca.pem", "server.pem")]
        if not paths[-1].exists():
            authority, stranger = trustme.CA(), trustme.CA()
            server = authority.issue_cert("127.0.0.1", "localhost")
            authority.cert_pem.write_to_path(paths[0])
            (folder / "client.pem").write_bytes(pkcs8(authority.issue_cert("client.example")))
            write_keys(folder)
            stranger.cert_pem.write_to_path(paths[1])
            paths[2].write_bytes(pkcs8(server))
        return cls(folder, *map(str, paths))

    @property
    def jwks(self) -> str:
        """Where the broker reads the keys that sign tokens."""
        return (self.folder / "jwks.json").as_uri()

    def login(self, broker: RunBroker, way: str, **extra: object) -> dict[str, Any]:
        """Configuration of a member that enters in one of :data:`WAYS`."""
        given = {"bootstrap.servers": broker.bootstrap_of(way.partition("-")[0])}
        given |= {"group.id": fresh("group"), **QUICK, **WAYS[way]}
        if way != "OAUTH":
            given["ssl.ca.location"] = self.ca
        return given | extra

    def broker_settings(self, cut_port: int) -> BrokerSettings:
        """A broker with one listener for each way in, and one behind a proxy at ``cut_port``.

        It keeps access lists: who is not named in one may do everything.
        """
        properties = {
            "broker.rack": RACK,
            "log.cleaner.backoff.ms": "500",  # a test that waits for compaction
            **{f"group.{kind}.heartbeat.interval.ms": "500" for kind in EPOCH_GROUPS},
            **{f"group.{kind}.min.heartbeat.interval.ms": "500" for kind in EPOCH_GROUPS},
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.keystore,
            "ssl.client.auth": "none",
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.mtls.ssl.truststore.type": "PEM",
            "listener.name.mtls.ssl.truststore.location": self.ca,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
            "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
            "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.plain.plain.sasl.jaas.config": (
                # Twice escaped: for the properties file and for the login module's own words.
                f'{_PLAIN} required user_{USER}="{PASSWORD}" '
                f'user_bob="{QUOTED_PASSWORD.replace(chr(34), chr(92) * 2 + chr(34))}";'
            ),
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": (
                f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": _UNSECURED,
            "listener.name.oidc.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oidc.oauthbearer.sasl.jaas.config": f"{_OAUTH} required;",
            "listener.name.oidc.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
            "listener.name.oidc.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
            "listener.name.oidc.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
            "listener.name.oidc.oauthbearer.connections.max.reauth.ms": "3600000",
            JWKS: self.jwks,
        }
        scram = f"name={USER},password={PASSWORD}"
        return BrokerSettings(
            properties=properties,
            listeners={
                "TLS": "SSL",
                "SCRAM": "SASL_SSL",
                "PLAIN": "SASL_SSL",
                "OAUTH": "SASL_PLAINTEXT",
                "OIDC": "SASL_PLAINTEXT",
                "MTLS": "SSL",
                "CUT": "PLAINTEXT",
            },
            advertised={"CUT": (cut_port,)},
            format_arguments=(
                "--add-scram",
                f"SCRAM-SHA-256=[{scram}]",
                "--add-scram",
                f"SCRAM-SHA-512=[{scram}]",
            ),
        )


def pkcs8(server: trustme.LeafCert) -> bytes:
    """Key and chain in one file; Kafka reads keys in PKCS #8 alone."""
    key = serialization.load_pem_private_key(server.private_key_pem.bytes(), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem + b"".join(blob.bytes() for blob in server.cert_chain_pems)


def keytool(*words: object) -> None:
    """Run Java's keytool."""
    run_program(find_java().home / "bin" / "keytool", *words, "-noprompt").passed()


def write_stores(ca: Path, client: Path, folder: Path, password: str) -> None:
    """Write ``ca.KIND`` and ``client.KIND``, of JKS and of PKCS12, from PEM."""
    key = folder / "client.PKCS12"
    line = ["openssl", "pkcs12", "-export", "-in", client, "-name", "client", "-out", key]
    run_program(*line, "-passout", f"pass:{password}").passed()
    keytool(
        *("-importkeystore", "-srckeystore", key, "-srcstorepass", password),
        *("-destkeystore", folder / "client.JKS", "-deststoretype", "JKS"),
        *("-deststorepass", password),
    )
    for kind in ("JKS", "PKCS12"):
        keytool(
            *("-importcert", "-alias", "ca", "-file", ca, "-keystore", folder / f"ca.{kind}"),
            *("-storetype", kind, "-storepass", password),
        )


def unsecured_token() -> tuple[str, float]:
    """An unsigned JSON web token, as Kafka's development validator takes it, and its expiry."""
    now = int(time.time())  # a broker cuts its clock to milliseconds and takes none from the future
    expiry = float(now + 3600)

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    claims = {"sub": USER, "iat": now, "exp": expiry, "scope": "kafka"}
    return f"{part({'alg': 'none'})}.{part(claims)}.", expiry


LOGIN = {"sasl.username": USER, "sasl.password": PASSWORD}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "TLS": {"security.protocol": "SSL"},
    "SCRAM-256": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", **LOGIN},
    "SCRAM-512": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **LOGIN},
    "PLAIN": {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **LOGIN},
    "OAUTH": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "holdfast.oauth.token.provider": unsecured_token,
    },
}


@contextmanager
def entries(
    broker: RunBroker,
    rules: Iterable[Rule],
    permission: AclPermissionType = AclPermissionType.ALLOW,
    *,
    user: str = USER,
) -> Iterator[None]:
    """Entries of access lists for our user, while the block lasts."""
    admin = admin_of(broker.bootstrap)
    written = [
        (*_place(resource, name), f"User:{user}", "*", AclOperation[operation], permission)
        for resource, name, operation in rules
    ]
    for future in admin.create_acls([AclBinding(*rule) for rule in written]).values():
        future.result(60)
    try:
        yield
    finally:
        filters = [AclBindingFilter(*rule) for rule in written]
        for future in admin.delete_acls(filters).values():
            future.result(60)


def _place(resource: str, name: str) -> tuple[ResourceType, str, ResourcePatternType]:
    if resource == "cluster":
        return ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL
    kind = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}[resource]
    if name.endswith("*") and name != "*":
        return kind, name.rstrip("*"), ResourcePatternType.PREFIXED
    return kind, name, ResourcePatternType.LITERAL


def ours_in(what: object) -> Iterator[object]:
    """The objects of our classes that an object holds, through whatever other objects.

    What belongs to the process and not to the object is not looked at: modules, classes, what a
    function finds in its module, what runs.
    """
    seen, open_ = {id(what)}, [what]
    while open_:
        one = open_.pop()
        if type(one).__module__.startswith("holdfast"):
            yield one
        held = (one.__closure__, one.__defaults__) if isinstance(one, FunctionType) else ()
        for other in held or gc.get_referents(one):
            if isinstance(other, ModuleType | type | CodeType | FrameType) or id(other) in seen:
                continue
            seen.add(id(other))
            open_.append(other)


def showing(secret: str, what: object) -> set[str]:
    """The names of our classes with an object in this one whose text has the secret."""
    found = list(ours_in(what))
    assert found
    return {type(one).__qualname__ for one in found if secret in repr(one)}
