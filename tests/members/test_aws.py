"""Logins of Amazon MSK: the token's signature, computed without AWS's code; the region."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from holdfast.cluster import client_configs, credentials
from holdfast.errors import ClientError, ConfigError
from holdfast.members.config.settings import Settings, librdkafka_fetch

MSK = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
BASE = {"bootstrap.servers": MSK, "group.id": "g", "security.protocol": "SASL_SSL"}
IAM = "software.amazon.msk.auth.iam"
PROVIDER = "holdfast.oauth.token.provider"
JAVA = {
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
}
SPELLINGS = {
    "Java": JAVA,
    "ours": {"sasl.mechanism": "AWS_MSK_IAM"},
    "by region": {"sasl.mechanism": "OAUTHBEARER", "holdfast.aws.region": "eu-west-1"},
    "Java, OAUTHBEARER": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
    },
}


@pytest.fixture(autouse=True)
def login(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-key")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def signature_of(query, host, secret):
    """Sign the query of a presigned URL, as AWS's documents describe Signature Version 4."""
    signed = {k: v for k, v in query.items() if k not in ("X-Amz-Signature", "User-Agent")}
    words = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(signed.items()))
    nothing = hashlib.sha256(b"").hexdigest()
    canonical = f"GET\n/\n{words}\nhost:{host}\n\nhost\n{nothing}"
    scope = query["X-Amz-Credential"].partition("/")[2]
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{query['X-Amz-Date']}\n{scope}\n{digest}"
    return hmac.new(key, text.encode(), "sha256").hexdigest()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_token_of_every_client_is_signed_as_aws_signs(spelling):
    settings = Settings.parse({**BASE, **SPELLINGS[spelling]})
    value, expires_s, *_ = librdkafka_fetch(settings)["oauth_cb"]("")
    provider = client_configs.kafka_python_connection(settings)["sasl_oauth_token_provider"]
    assert provider.token() == value
    url = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode()
    host, query = urlsplit(url).netloc, dict(parse_qsl(urlsplit(url).query))
    signature = signature_of(query, host, "planted-key")
    assert host == "kafka.eu-west-1.amazonaws.com"
    assert query["X-Amz-Credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert (query["Action"], query["X-Amz-Signature"]) == ("kafka-cluster:Connect", signature)
    assert signature_of(query, host, "another key") != signature
    at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert expires_s == at.timestamp() + 900
    assert "planted" not in f"{settings} {settings[PROVIDER]!r}"


def test_sparks_client_gets_awss_own_login():
    settings = Settings.parse({**BASE, **JAVA})
    assert credentials.java(settings.values) == {
        **JAVA,
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "https",
    }
    role = f'{IAM}.IAMLoginModule required awsProfileName="a \\"b\\"";'
    settings = Settings.parse({**BASE, **JAVA, "sasl.jaas.config": role})
    assert credentials.java(settings.values)["sasl.jaas.config"] == role


def test_a_region_that_nothing_names_is_asked_for(monkeypatch):
    config = {**BASE, "bootstrap.servers": "10.0.0.1:9098", "sasl.mechanism": "AWS_MSK_IAM"}
    with pytest.raises(ConfigError, match=r"holdfast\.aws\.region"):
        Settings.parse(config)
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    assert "us-east-2" in repr(Settings.parse(config)[PROVIDER])
    serverless = "boot-x.c1.kafka-serverless.ap-south-1.amazonaws.com:9098"
    settings = Settings.parse({**config, "bootstrap.servers": serverless})
    assert "ap-south-1" in repr(settings[PROVIDER])


def test_missing_credentials_are_named(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(ClientError, match="AWS_ACCESS_KEY_ID"):
        Settings.parse({**BASE, **JAVA, "holdfast.aws.region": "eu-north-1"})[PROVIDER]()
    profile = f'{IAM}.IAMLoginModule required awsProfileName="none";'
    with pytest.raises(ClientError, match="none"):
        Settings.parse({**BASE, **JAVA, "sasl.jaas.config": profile})[PROVIDER]()
    with pytest.raises(ConfigError, match="awsStsEndpoint"):
        Settings.parse(
            {**BASE, **JAVA, "sasl.jaas.config": f'{IAM}.X required awsStsEndpoint="x";'}
        )
