"""Keystores that keytool made: JKS and PKCS #12 are the same to every client as PEM."""

from __future__ import annotations

import confluent_kafka
import pytest
import trustme
from cryptography import x509
from tests.live.security import keytool, pkcs8, write_stores

from holdfast.cluster import client_configs, credentials
from holdfast.cluster.keystores import read_keystore
from holdfast.errors import ConfigError
from holdfast.members.config.settings import Settings, librdkafka_fetch

PASSWORD = "store-password"
TLS = {"bootstrap.servers": "h:1", "group.id": "g", "security.protocol": "SSL"}
KINDS = ("JKS", "PKCS12")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of both kinds: of a CA, and of a client's key and chain."""
    folder = tmp_path_factory.mktemp("stores")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "client.pem").write_bytes(pkcs8(authority.issue_cert("client.example")))
    write_stores(folder / "ca.pem", folder / "client.pem", folder, PASSWORD)
    return folder


def config(stores, trust, key, password=PASSWORD):
    found = {**TLS, "ssl.truststore.password": password, "ssl.keystore.password": password}
    found["ssl.truststore.location"] = str(stores / f"ca.{trust}")
    return found | {"ssl.keystore.location": str(stores / f"client.{key}")}


@pytest.mark.parametrize(("trust", "key"), [("JKS", "JKS"), ("PKCS12", "PKCS12")])
def test_a_store_is_the_same_to_every_client_as_pem(stores, trust, key):
    # Java's default type is JKS, whatever the file is
    settings = Settings.parse({**config(stores, trust, key), "ssl.truststore.type": "JKS"})
    context = client_configs.ssl_context(settings)
    assert context.cert_store_stats()["x509_ca"] == 1
    confluent_kafka.Consumer(librdkafka_fetch(settings)).close()
    java = credentials.java(settings.values)
    expected = x509.load_pem_x509_certificates((stores / "client.pem").read_bytes())
    chain = java["ssl.keystore.certificate.chain"].encode()
    assert x509.load_pem_x509_certificates(chain)[0] == expected[0]
    assert "BEGIN PRIVATE KEY" in java["ssl.keystore.key"]
    assert PASSWORD not in f"{settings} {java}" and "PRIVATE KEY" not in repr(settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_password_names_its_key_alone(stores, kind):
    for password in ("planted", None):
        with pytest.raises(ConfigError, match=r"ssl\.(truststore|keystore)\.password") as caught:
            Settings.parse(config(stores, kind, kind, password))
        assert "planted" not in str(caught.value)


def test_a_jks_key_may_have_a_password_of_its_own(stores, tmp_path):
    store = tmp_path / "own.jks"
    store.write_bytes((stores / "client.JKS").read_bytes())
    keytool("-keypasswd", "-alias", "client", "-keystore", store, "-storetype", "JKS",
            "-storepass", PASSWORD, "-keypass", PASSWORD, "-new", "key-password")  # fmt: skip
    own = {**TLS, "ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}
    found = Settings.parse({**own, "ssl.key.password": "key-password"})
    assert client_configs.ssl_context(found) is not None
    with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
        Settings.parse(own)


def test_a_damaged_or_foreign_store_is_refused_by_its_name(stores, tmp_path):
    whole = (stores / "client.JKS").read_bytes()
    for data in (whole[:-40], whole[:30], b"\xce\xce\xce\xce", b"0\x82", b"text"):
        (store := tmp_path / "store").write_bytes(data)
        with pytest.raises(ConfigError, match=r"ssl\.keystore\.(location|password)"):
            read_keystore(store, "ssl.keystore", PASSWORD, None)
    wrong = {**TLS, "ssl.keystore.location": str(stores / "ca.JKS")}
    with pytest.raises(ConfigError, match="has no certificate"):
        Settings.parse({**wrong, "ssl.keystore.password": PASSWORD})
