"""Tokens of Amazon MSK's IAM logins, signed by AWS's own library; an extra, ``aws``.

**Rules.** Credentials come from AWS's chain (environment, profile, container, instance), or from
the profile or role of ``sasl.jaas.config``. The region is ``holdfast.aws.region``, else that of the
brokers' names, else ``AWS_REGION`` or ``AWS_DEFAULT_REGION``.

References: Amazon MSK Developer Guide, "IAM access control"; AWS Signature Version 4.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache

from holdfast.cluster.oidc import quoted
from holdfast.cluster.tokens import Token, Tokens
from holdfast.errors import ClientError, ConfigError

REGION = "holdfast.aws.region"
MECHANISM = "AWS_MSK_IAM"
_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$")
OAUTH_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
"""Options of the login module in ``sasl.jaas.config`` that are honoured."""


def region_of(given: object, servers: object) -> str:
    """Return the region of a cluster; a ConfigError if nothing names one."""
    if given:
        return str(given)
    listed = servers.split(",") if isinstance(servers, str) else servers
    for address in listed if isinstance(listed, (list, tuple)) else ():
        if found := _BROKER.search(str(address).strip()):
            return found[1]
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(
            f"{REGION}: {MECHANISM} needs the region, such as eu-west-1: bootstrap.servers does "
            "not name it, and AWS_REGION is not set"
        )
    return region


def aws_tokens(region: str, options: Mapping[str, str]) -> Tokens:
    """Return the tokens for a region and :data:`OPTIONS`, the same ones for the whole process."""
    return _tokens(region, tuple(sorted(options.items())))


@lru_cache(maxsize=16)
def _tokens(region: str, options: tuple[tuple[str, str], ...]) -> Tokens:
    try:
        import aws_msk_iam_sasl_signer  # noqa: F401 - a missing extra is an error before connecting
    except ImportError:
        raise ConfigError(
            f"{MECHANISM} needs an extra: pip install 'kafka-holdfast[aws]'"
        ) from None
    login = "".join(f' {name}="{quoted(value)}"' for name, value in options)
    java = {
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f"{_MODULE} required{login};",
        "sasl.client.callback.handler.class": HANDLER,
    }
    return Tokens(lambda: _sign(region, dict(options)), f"{MECHANISM} in {region}", java)


def _sign(region: str, options: Mapping[str, str]) -> Token:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer
    from botocore.exceptions import BotoCoreError
    from botocore.exceptions import ClientError as AwsError

    try:
        if role := options.get("awsRoleArn"):
            session = options.get("awsRoleSessionName")
            found = Signer.generate_auth_token_from_role_arn(
                region, role, *([session] if session else [])
            )
        elif profile := options.get("awsProfileName"):
            found = Signer.generate_auth_token_from_profile(region, profile)
        else:
            found = Signer.generate_auth_token(region)
    except (BotoCoreError, AwsError) as error:
        raise ClientError(f"{MECHANISM}: no AWS credentials ({error})") from None
    except (AttributeError, ValueError):  # the signer's own answers to missing credentials
        raise ClientError(
            f"{MECHANISM}: found no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or give the program a role"
        ) from None
    value, expires_ms = found
    return Token(value=value, expires_s=expires_ms / 1000, principal="aws")
