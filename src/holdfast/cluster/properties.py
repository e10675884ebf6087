r"""Files of client properties, read as Java's ``Properties`` and Kafka's configuration read them.

**Rules.** A key ends at the first blank, ``=`` or ``:`` without a backslash before it. The last
value of a key counts. Variables ``${name:key}`` are replaced by Kafka's own providers of the
environment, of files and of folders, if ``config.providers`` names them. Java reads ISO 8859-1;
a file in UTF-8 is accepted, too, and ``oddities`` names it.

References: java.util.Properties, ``load``; KIP-297 (providers of configuration), KIP-421 (their use
by clients), KIP-887 (environment), KIP-993 (allowed paths).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigError

PROVIDERS = "config.providers"
_PACKAGE = "org.apache.kafka.common.config.provider."
_ENVIRONMENT, _FILE, _FOLDER = (
    f"{_PACKAGE}{name}ConfigProvider" for name in ("EnvVar", "File", "Directory")
)
_VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE = re.compile(r"((?:[^\\\s=:]|\\.)*)\s*([=:]?)\s*(.*)", re.S)
_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Property:
    key: str
    value: str
    line: int


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of client properties: the last value of each key, with those of its variables."""
    return resolved({one.key: one.value for one in _properties(path, _text(path)[0])})


def oddities(path: Path) -> Iterator[str]:
    """Yield what a reader of the file may not expect, line by line."""
    text, encoding = _text(path)
    if encoding == "utf-8":
        yield (
            "it has characters outside of ASCII in UTF-8: Kafka's tools read ISO 8859-1, where "
            "\\u00e9 is one of them for certain"
        )
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(r"\\[ \t]+$", line) and line.lstrip()[0] not in "#!":
            yield f"line {number} ends with a backslash and blanks: the next line is not part of it"
    lines: dict[str, int] = {}
    for one in _properties(path, text):
        if one.key in lines:
            yield f"line {one.line} replaces {one.key} of line {lines[one.key]}"
        lines[one.key] = one.line
        if "${" in one.value and not _VARIABLE.search(one.value):
            yield f"{one.key} contains ${{, which only {PROVIDERS} replaces"


def _text(path: Path) -> tuple[str, str]:
    """Return the text of a file and its encoding."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--command-config {path} cannot be read: {error}") from error
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            raise ConfigError(
                f"--command-config {path} begins with a byte order mark ({encoding}), which Java "
                "reads as part of the first key: save it without"
            )
    for encoding in ("ascii", "utf-8"):
        try:
            return data.decode(encoding), encoding
        except ValueError:
            continue
    return data.decode("latin-1"), "latin-1"


def _properties(path: Path, content: str) -> Iterator[_Property]:
    begins, text = 0, ""
    for number, raw in enumerate([*re.split(r"\r\n|\n|\r", content), ""], start=1):
        line = raw.lstrip(" \t\f")
        if not text:
            begins = number
            if not line or line[0] in "#!":
                continue
        text += line
        if (len(text) - len(text.rstrip("\\"))) % 2:
            text = text[:-1]
            continue
        if text:
            where = f"{path} line {begins}"
            key, _, value = _LINE.fullmatch(text.rstrip()).groups()  # type: ignore[union-attr]
            yield _Property(key=_plain(key, where), value=_plain(value, where), line=begins)
        text = ""


def _plain(text: str, where: str) -> str:
    def meant(escape: re.Match[str]) -> str:
        what = escape[1]
        if what == "u":
            raise ConfigError(rf"{where}: malformed \uxxxx")
        return chr(int(what[1:], 16)) if len(what) == 5 else _ESCAPES.get(what, what)

    return _ESCAPE.sub(meant, text)


def resolved(config: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration without its providers, and with the values of its variables."""
    named = [name.strip() for name in config.get(PROVIDERS, "").split(",") if name.strip()]
    classes = {name: config.get(f"{PROVIDERS}.{name}.class", "") for name in named}
    for name, class_ in classes.items():
        if class_ not in (_ENVIRONMENT, _FILE, _FOLDER):
            raise ConfigError(
                f"{PROVIDERS}.{name}.class: {class_ or 'nothing'} cannot be called here; it may be "
                f"{_ENVIRONMENT}, {_FILE} or {_FOLDER}"
            )
    rest = {key: one for key, one in config.items() if not key.startswith(PROVIDERS)}

    def value_of(key: str, variable: re.Match[str]) -> str:
        name, path, wanted = variable.groups()
        if name not in classes:
            return variable[0]
        limits = f"{PROVIDERS}.{name}.param."
        try:
            if classes[name] == _ENVIRONMENT:
                pattern = config.get(f"{limits}allowlist.pattern", ".*")
                return {k: v for k, v in os.environ.items() if re.fullmatch(pattern, k)}[wanted]
            return _of_files(
                classes[name], Path(path or ""), wanted, config.get(f"{limits}allowed.paths", "")
            )
        except (KeyError, OSError, ValueError):
            raise ConfigError(f"{key}: {variable[0]} has no value") from None

    return {
        key: _VARIABLE.sub(lambda found, key=key: value_of(key, found), value)  # type: ignore[misc]
        for key, value in rest.items()
    }


def _of_files(class_: str, path: Path, wanted: str, allowed: str) -> str:
    """Return a value of a file of properties, or the text of a file in a folder."""
    roots = [Path(one.strip()) for one in allowed.split(",") if one.strip()]
    if roots and not any(path.resolve().is_relative_to(root.resolve()) for root in roots):
        raise ValueError
    if class_ == _FILE:
        return {one.key: one.value for one in _properties(path, _text(path)[0])}[wanted]
    if Path(wanted).name != wanted:
        raise ValueError
    return (path / wanted).read_text(encoding="utf-8")
