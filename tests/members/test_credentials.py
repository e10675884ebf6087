"""Credentials in the spelling of every client."""

from __future__ import annotations

import ssl

import pytest
import trustme
from tests.live.security import pkcs8

from holdfast.cluster import client_configs, credentials
from holdfast.cluster.settings import oddities, read_properties
from holdfast.errors import ConfigError
from holdfast.members.config.settings import Settings, librdkafka_fetch

BASE = {"bootstrap.servers": "h:1", "group.id": "g"}
TLS = {**BASE, "security.protocol": "SSL"}
LOGIN = {**BASE, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A CA, a client's certificate and key, and both in one file, all PEM; and one that is not."""
    folder = tmp_path_factory.mktemp("pem")
    authority = trustme.CA()
    leaf = authority.issue_cert("client.example")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    both = pkcs8(leaf)
    key, begin, chain = both.partition(b"-----BEGIN CERTIFICATE")
    (folder / "key.pem").write_bytes(key)
    (folder / "chain.pem").write_bytes(begin + chain)
    (folder / "both.pem").write_bytes(both)
    (folder / "old-key.pem").write_bytes(leaf.private_key_pem.bytes())
    (folder / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    return folder


def filled(config, files):
    """A configuration: the path of each ``{file}``, and the text of each ``<file>``."""
    return {
        key: str(files / text[1:-1])
        if str(text).startswith("{")
        else (files / text[1:-1]).read_text()
        if str(text).startswith("<")
        else text
        for key, text in config.items()
    }


LIBRDKAFKAS = {
    "ssl.ca.location": "{ca.pem}",
    "ssl.certificate.location": "{chain.pem}",
    "ssl.key.location": "{key.pem}",
}
JAVAS = {"ssl.truststore.location": "{ca.pem}", "ssl.keystore.location": "{both.pem}"}
PEM = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
TEXTS = {
    **PEM,
    "ssl.truststore.certificates": "<ca.pem>",
    "ssl.keystore.certificate.chain": "<chain.pem>",
    "ssl.keystore.key": "<key.pem>",
}


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param(LIBRDKAFKAS, id="librdkafka"),
        pytest.param({**JAVAS, **PEM}, id="Java, files"),
        pytest.param(JAVAS, id="Java, files without a type"),
        pytest.param(TEXTS, id="Java, text"),
        pytest.param(
            {
                "ssl.ca.pem": "<ca.pem>",
                "ssl.certificate.pem": "<chain.pem>",
                "ssl.key.pem": "<key.pem>",
            },
            id="librdkafka, text",
        ),
        pytest.param(
            {
                **LIBRDKAFKAS,
                "ssl.truststore.location": "{ca.pem}",
                "enable.ssl.certificate.verification": "true",
            },
            id="both",
        ),
    ],
)
def test_every_spelling_is_the_same_to_every_client(files, spelling):
    settings = Settings.parse({**TLS, **filled(spelling, files)})
    context = client_configs.ssl_context(settings)
    assert isinstance(context, ssl.SSLContext)
    assert context.cert_store_stats()["x509_ca"] == 1
    assert credentials.java(settings.values) == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "https",
        **filled(TEXTS, files),
    }
    theirs = librdkafka_fetch(settings)
    assert any(key in theirs for key in ("ssl.ca.location", "ssl.ca.pem"))
    import confluent_kafka

    confluent_kafka.Consumer(theirs).close()  # librdkafka reads all of it at once


def test_only_a_trust_store_is_enough(files):
    settings = Settings.parse({**TLS, "ssl.ca.location": str(files / "ca.pem")})
    assert "ssl.keystore.type" not in credentials.java(settings.values)
    assert client_configs.ssl_context(settings) is not None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"ssl.truststore.location": "{store.jks}"}, "store.jks is damaged"),
        ({"ssl.keystore.type": "PKCS12"}, "a store of type PKCS12"),
        ({"ssl.truststore.location": "/none/there.pem"}, "/none/there.pem cannot be read"),
        (
            {"ssl.truststore.location": "{ca.pem}", "ssl.truststore.password": "x"},
            "ssl.truststore.password: a PEM store has no password",
        ),
        (
            {"ssl.ca.location": "/a.pem", "ssl.truststore.location": "{ca.pem}"},
            "another spelling of ssl.ca.location",
        ),
        ({"ssl.ca.location": "/a.pem", "ssl.ca.pem": "x"}, "one of them is enough"),
        ({"ssl.key.pem": "x"}, "ssl.certificate.pem"),
        ({"enable.ssl.certificate.verification": False}, "always checked"),
        ({"sasl.kerberos.keytab": "/k"}, "needs sasl.mechanism GSSAPI, found none"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "cannot be called here"),
        ({"sasl.kerberos.kinit.cmd": "kinit"}, "no kinit is run"),
        ({"sasl.mechanism": "aws_msk_iam", "security.protocol": "SASL_SSL"}, "holdfast.aws.region"),
        ({"security.protocol": "SASL_SSSL"}, "did you mean 'SASL_SSL'"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(files, config, words):
    with pytest.raises(ConfigError, match=words):
        Settings.parse({**TLS, **filled(config, files)})


def test_a_protocol_may_be_in_small_letters():
    assert Settings.parse({**BASE, "security.protocol": "ssl"})["security.protocol"] == "SSL"


def test_a_key_that_java_cannot_read_is_told(files):
    settings = Settings.parse(
        {
            **TLS,
            "ssl.certificate.location": str(files / "chain.pem"),
            "ssl.key.location": str(files / "old-key.pem"),
        }
    )
    assert client_configs.ssl_context(settings) is not None
    with pytest.raises(ConfigError, match="openssl pkcs8"):
        credentials.java(settings.values)


@pytest.mark.parametrize(
    ("line", "login"),
    [
        (f'{PLAIN} required username="u" password="p";', ("u", "p")),
        (f"{PLAIN} required username=u password=p;", ("u", "p")),
        (f"{PLAIN} required username='u' password='p q';", ("u", "p q")),
        (rf'{PLAIN} required password="a\"b\\c" username = "u";', ("u", 'a"b\\c')),
        (f'{PLAIN} required\n  username="u"\n  password="";', ("u", "")),
    ],
)
def test_a_line_of_jaas(line, login):
    settings = Settings.parse({**LOGIN, "sasl.jaas.config": line})
    assert (settings["sasl.username"], settings["sasl.password"]) == login
    again = credentials.java(settings.values)["sasl.jaas.config"]
    found = Settings.parse({**LOGIN, "sasl.jaas.config": again})
    assert (found["sasl.username"], found["sasl.password"]) == login


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('username="u" passwrd="hunter2"', "found no password among username, passwrd"),
        ('username="u" password="hunter2"', "another spelling of sasl.password"),
    ],
)
def test_a_line_of_jaas_that_is_refused_shows_no_secret(line, said):
    with pytest.raises(ConfigError) as caught:
        Settings.parse(
            {**LOGIN, "sasl.password": "hunter3", "sasl.jaas.config": f"{PLAIN} required {line};"}
        )
    assert said in str(caught.value)
    assert "hunter" not in str(caught.value)


KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
KEYTAB = {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "u@R"}
KERBEROS = {**BASE, "security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "kafka"}


@pytest.mark.parametrize(
    "spelling",
    [
        {"sasl.mechanism": "GSSAPI", **KEYTAB},
        {"sasl.jaas.config": f'{KRB5} required useKeyTab=true keyTab="/k" principal="u@R";'},
        {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": f"{KRB5} required useTicketCache=true;"},
    ],
)
def test_every_spelling_of_kerberos_gets_to_every_client(spelling):
    settings = Settings.parse({**KERBEROS, **spelling})
    keytab = KEYTAB if "useTicketCache" not in str(spelling) else {}
    expected = {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka", **keytab}
    theirs = librdkafka_fetch(settings)
    assert {key: theirs.get(key) for key in expected} == expected
    javas = credentials.java(settings.values)
    again = Settings.parse({**BASE, **javas})
    assert again.values == {**settings.values}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('useKeyTab=true keyTab="/k"', "sasl.kerberos.principal: sasl.kerberos.keytab needs it"),
        ('keyTab="/k" principal="u@R"', "keyTab needs useKeyTab=true"),
        ('useKeyTab=true principal="u@R"', "useKeyTab=true needs keyTab"),
        ('principal="u@R"', "nothing prompts for a password"),
        ('useTicketCache=true ticketCache="/t"', "ticketCache .* set KRB5CCNAME"),
        ('useTicketCache=true serviceName="other"', "another spelling of sasl.kerberos.service"),
    ],
)
def test_a_login_module_of_kerberos_that_cannot_be_honoured_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        Settings.parse({**KERBEROS, "sasl.jaas.config": f"{KRB5} required {options};"})


def test_properties_are_read_as_java_reads_them(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "! a note\n"
        "security.protocol: SASL_SSL\n"
        "  sasl.mechanism = PLAIN  \n"
        "sasl.jaas.config=x required \\\n"
        '   username="u" \\\n'
        '   password="p";\n'
        "path=C:\\\\certs\\tx\n"
        "umlaut=\\u00fc\n"
        "empty=\n"
    )
    assert read_properties(file) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'x required username="u" password="p";',
        "path": "C:\\certs\tx",
        "umlaut": "ü",
        "empty": "",
    }
    file.write_text("a=1\nb=2\\\n\nblank \\\n goes on\nalone\n\\=x\\ y:z\nend\\")
    expected = {"a": "1", "b": "2", "blank": "goes on", "alone": "", "=x y": "z", "end": ""}
    assert read_properties(file) == expected
    file.write_bytes("a=1\rb=\u00e9\r\n".encode("latin-1"))
    assert read_properties(file) == {"a": "1", "b": "\u00e9"}
    file.write_text("a=\\u00zz")
    with pytest.raises(ConfigError, match="line 1: malformed"):
        read_properties(file)
    for mark in (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"):
        file.write_bytes(mark + b"a=1\n")
        with pytest.raises(ConfigError, match="byte order mark"):
            read_properties(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_properties(tmp_path / "none")


def test_what_a_reader_of_properties_may_not_expect_is_named(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("a=1\nb=\u00e9\nc=1 \\ \n  d=2\na=${HOME}\n# e \\ \n", encoding="utf-8")
    assert [*oddities(file)] == [
        "it has characters outside of ASCII in UTF-8: Kafka's tools read ISO 8859-1, where \\u00e9 "
        "is one of them for certain",
        "line 3 ends with a backslash and blanks: the next line is not part of it",
        "line 5 replaces a of line 1",
        "a contains ${, which only config.providers replaces",
    ]
    file.write_text("a=1\n")
    assert [*oddities(file)] == []


def test_kafkas_own_providers_give_variables_their_values(tmp_path, monkeypatch):
    monkeypatch.setenv("OF_TEST", "from the environment")
    (tmp_path / "secrets.properties").write_text("pw = of \\u0041 file\n")
    (tmp_path / "word").write_text("of a folder")
    package = "org.apache.kafka.common.config.provider"
    base = (
        "config.providers=env, file,folder\n"
        f"config.providers.env.class={package}.EnvVarConfigProvider\n"
        f"config.providers.file.class={package}.FileConfigProvider\n"
        f"config.providers.folder.class={package}.DirectoryConfigProvider\n"
    )
    file = tmp_path / "client.properties"
    file.write_text(
        f"{base}a=<${{env:OF_TEST}}>\nb=${{file:{tmp_path}/secrets.properties:pw}}\n"
        f"c=${{folder:{tmp_path}:word}}\nd=${{other:x}} ${{}}\n"
    )
    assert read_properties(file) == {
        "a": "<from the environment>",
        "b": "of A file",
        "c": "of a folder",
        "d": "${other:x} ${}",
    }
    allowed = "config.providers.folder.param.allowed.paths"
    for more, said in {
        "a=${env:OF_NOTHING}": r"a: \$\{env:OF_NOTHING\} has no value",
        f"a=${{folder:{tmp_path}:../word}}": "has no value",
        "config.providers.env.param.allowlist.pattern=OTHER.*\na=${env:OF_TEST}": "has no value",
        f"{allowed}=/none\na=${{folder:{tmp_path}:word}}": "has no value",
        "config.providers.env.class=com.example.Vault": "com.example.Vault cannot be called here",
    }.items():
        file.write_text(f"{base}{more}\n")
        with pytest.raises(ConfigError, match=said):
            read_properties(file)
