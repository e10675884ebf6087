"""``docs/configuration.md``: every key of a configuration, and its use."""

from __future__ import annotations

from tools.pages.tables import table

from holdfast.cluster import client_configs, credentials
from holdfast.members.config import client_keys
from holdfast.members.config.settings import KEYS

_JAVA = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
}
_ONLY_JAVA = {"default.api.timeout.ms", "max.poll.records", "scheduled.rebalance.max.delay.ms"}
_RECORDS = {
    *("fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes"),
    *("isolation.level", "auto.offset.reset"),
}
_BOTH = {
    *("bootstrap.servers", "client.id", "client.rack"),
    *(key for key in KEYS if key.startswith(("ssl.", "sasl.", "security."))),
}


def configuration_page() -> str:
    """Return the whole page."""
    head = ("key", "Java", "librdkafka", "default", "unit")
    return "\n".join(
        [
            "# Keys of a configuration",
            "",
            "<!-- written by tools/write_pages.py -->",
            "",
            "`Consumer` and `Worker` read these keys; [members](members.md#configuration) has their"
            " meaning. Times are",
            "whole numbers of milliseconds: `10000`, not `10s`. A drop-in takes every key of its"
            " original",
            "([clients.md](clients.md)). A file for `--command-config` may have the names of either"
            " client: logins and",
            "TLS are read as below, and other keys go to Spark's client under Java's names.",
            "",
            "## Keys of a member",
            "",
            *table((*head, "used by"), [_own(key) for key in KEYS]),
            "",
            "## Passed on to librdkafka",
            "",
            "Without the key librdkafka's own default applies.",
            "",
            *table((*head, "meaning"), [_passed(key) for key in client_keys.PASSED]),
            "",
            "## Other spellings",
            "",
            *table(("given", "is"), [(f"`{a}`", f"`{b}`") for a, b in _spellings().items()]),
            "",
            "## Accepted with one value",
            "",
            *table(
                ("key", "value", "reason"),
                [
                    (f"`{k}`", f"`{only}`", why)
                    for k, (only, why) in client_keys.FIXED_VALUES.items()
                ],
            ),
            "",
            "## Refused",
            "",
            *table(("key", "reason"), [(f"`{k}`", why) for k, why in client_keys.REFUSED.items()]),
            "",
        ]
    )


def _spellings() -> dict[str, str]:
    return {**client_configs.ALIASES, **credentials.SAME}


def _unit(key: str) -> str:
    return next((unit for unit in ("ms", "bytes") if key.endswith(f".{unit}")), "")


def _librdkafka(key: str) -> str:
    if key in _ONLY_JAVA or key.startswith("holdfast."):
        return "-"
    if key in client_keys.PASSED:
        return f"`{client_keys.PASSED[key].name}`"
    others = [f"`{a}`" for a, b in client_configs.ALIASES.items() if b == key]
    same = [] if key in ("fetch.max.wait.ms", "request.timeout.ms") else [f"`{key}`"]
    return ", ".join((same + others) if key != "metadata.max.age.ms" else others)


def _own(key: str) -> tuple[str, ...]:
    entry = KEYS[key]
    java = "-" if key.startswith("holdfast.") else f"`{_JAVA.get(key, key)}`"
    default = entry.default
    shown = "" if default in (None, "", {}) else str(default).lower()
    if isinstance(default, tuple):
        shown = ", ".join(default)
    user = "the member" if key not in _RECORDS | _BOTH else "librdkafka"
    if key in _BOTH:
        user = "both"
    return (f"`{key}`", java, _librdkafka(key), shown, _unit(key), user)


def _passed(key: str) -> tuple[str, ...]:
    entry = client_keys.PASSED[key]
    java = f"`{key}`" if key not in client_configs.LIBRDKAFKAS else "-"
    return (f"`{key}`", java, _librdkafka(key), "", entry.unit, entry.text)
