"""Keystores and truststores of Java as PEM text: JKS and PKCS #12.

**Rules.** The bytes decide the format, since Java reads both under either name. A wrong password is
an error that names its key. No error contains a password or a key. The text stays in memory.

**Strategy.** JKS is read here: its certificates are plain, and its keys are hidden by SHA-1 of the
password. ``cryptography`` reads PKCS #12 (an extra, ``keystores``).

References: OpenJDK, ``sun.security.provider.JavaKeyStore`` and ``KeyProtector``; RFC 7292.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from holdfast.errors import ConfigError

_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keystore:
    """The contents of a store, as PEM."""

    trusted: str  # certificates
    chain: str = ""  # of the first key
    key: str = field(default="", repr=False)  # PKCS #8, not encrypted


def is_pem(path: Path, name: str) -> bool:
    """Return whether a store of the keys ``name`` holds PEM."""
    return b"-----BEGIN" in _bytes_of(path, name)


def read_keystore(
    path: Path, name: str, password: str | None, key_password: str | None
) -> Keystore:
    """Read a store that is not PEM, whose key may have a password of its own.

    ``name`` is the beginning of its keys: ``ssl.keystore`` or ``ssl.truststore``.
    """
    data = _bytes_of(path, name)
    if data.startswith(_JKS):
        return _JksReader(data, path, name).read(password, key_password or password)
    if data.startswith(b"0"):  # an ASN.1 sequence
        return _pkcs12(data, path, name, password)
    kind = "JCEKS" if data.startswith(_JCEKS) else "no PEM, JKS or PKCS #12"
    raise ConfigError(
        f"{name}.location: {path} is {kind}; `keytool -importkeystore -deststoretype PKCS12` "
        "converts a store"
    )


def _bytes_of(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}.location: {path} cannot be read: {error.strerror}") from None


def _wrong_password(name: str) -> ConfigError:
    return ConfigError(f"{name}.password: it is not the password of {name}.location")


def first_certificate(text: str) -> tuple[str, datetime] | None:
    """Return the subject (RFC 2253) and the end of the first certificate of a PEM text.

    None if the extra ``keystores`` is not installed, or the text holds no certificate.
    """
    try:
        from cryptography import x509
    except ImportError:
        return None
    try:
        found = x509.load_pem_x509_certificate(text.encode())
    except ValueError:
        return None
    return found.subject.rfc4514_string(), found.not_valid_after_utc


def pem(kind: str, der: bytes) -> str:
    """Return one block of PEM."""
    text = base64.encodebytes(der).decode().replace("\n", "")
    lines = (text[i : i + 64] for i in range(0, len(text), 64))
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])


def _pkcs12(data: bytes, path: Path, name: str, password: str | None) -> Keystore:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            f"{name}.location: {path} is PKCS #12, which needs an extra: "
            "pip install 'kafka-holdfast[keystores]'"
        ) from None
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        if password is None:
            raise ConfigError(f"{name}.password: {path} needs one") from None
        if "password" in str(error).lower():
            raise _wrong_password(name) from None
        raise ConfigError(f"{name}.location: {path} is damaged: {error}") from None
    listed = [one.certificate for one in found.additional_certs]
    own = [] if found.cert is None else [found.cert.certificate]
    texts = [one.public_bytes(serialization.Encoding.PEM).decode() for one in (*own, *listed)]
    if found.key is None:
        return Keystore(trusted="".join(texts))
    key = found.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Keystore(trusted="".join(texts), chain="".join(texts), key=key.decode())


class _JksReader:
    """Reads one store of Java's own format."""

    def __init__(self, data: bytes, path: Path, name: str):
        self._data = data
        self._path = path
        self._name = name
        self._at = len(_JKS)

    def read(self, password: str | None, key_password: str | None) -> Keystore:
        try:
            return self._read(password, key_password)
        except (struct.error, IndexError, UnicodeDecodeError):
            raise ConfigError(f"{self._name}.location: {self._path} is damaged") from None

    def _read(self, password: str | None, key_password: str | None) -> Keystore:
        if password is not None:  # without one Java reads certificates unchecked, too
            body, digest = self._data[:-_DIGEST_BYTES], self._data[-_DIGEST_BYTES:]
            found = hashlib.sha1(_utf16(password) + _WHITENER + body).digest()  # noqa: S324
            if not hmac.compare_digest(found, digest):
                raise _wrong_password(self._name)
        version, n_entries = self._number(), self._number()
        trusted: list[str] = []
        chain, key = "", ""
        for _ in range(n_entries):
            tag = self._number()
            self._take(2)  # the alias
            self._at += 8  # the time of its creation
            if tag == _CERTIFICATE_ENTRY:
                trusted.append(self._certificate(version))
                continue
            hidden = self._take(4)
            certificates = [self._certificate(version) for _ in range(self._number())]
            if not key:
                chain, key = "".join(certificates), self._key(hidden, key_password)
        return Keystore(trusted="".join(trusted), chain=chain, key=key)

    def _certificate(self, version: int) -> str:
        if version > 1:
            self._take(2)  # its type, X.509
        return pem("CERTIFICATE", self._take(4))

    def _key(self, hidden: bytes, password: str | None) -> str:
        """Return a key that is hidden by a chain of digests of the password."""
        if password is None:
            raise ConfigError(f"{self._name}.password: {self._path} needs one")
        protected = _second_of(hidden)
        salt, secret = protected[:_DIGEST_BYTES], protected[_DIGEST_BYTES:-_DIGEST_BYTES]
        word, plain, digest = _utf16(password), b"", salt
        while len(plain) < len(secret):
            digest = hashlib.sha1(word + digest).digest()  # noqa: S324 - the format's own
            part = secret[len(plain) : len(plain) + _DIGEST_BYTES]
            plain += bytes(a ^ b for a, b in zip(part, digest, strict=False))
        if hashlib.sha1(word + plain).digest() != protected[-_DIGEST_BYTES:]:  # noqa: S324
            raise ConfigError(
                "ssl.key.password: it is not the password of the key in ssl.keystore.location"
            )
        return pem("PRIVATE KEY", plain)

    def _number(self) -> int:
        (number,) = struct.unpack_from(">I", self._data, self._at)
        self._at += 4
        return int(number)

    def _take(self, n_length_bytes: int) -> bytes:
        """Return bytes that follow their length."""
        begin = self._at + n_length_bytes
        end = begin + int.from_bytes(self._data[self._at : begin])
        if end > len(self._data):
            raise IndexError
        self._at = end
        return self._data[begin:end]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _second_of(der: bytes) -> bytes:
    """Return the contents of the second element of an ASN.1 sequence."""
    begin, _ = _element(der, 0)
    _, first_end = _element(der, begin)
    second, end = _element(der, first_end)
    return der[second:end]


def _element(der: bytes, at: int) -> tuple[int, int]:
    """Return begin and end of the contents of the element at ``at``."""
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        n_bytes = length & 0x7F
        length = int.from_bytes(der[begin : begin + n_bytes])
        begin += n_bytes
    return begin, begin + length
