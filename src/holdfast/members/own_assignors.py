"""Assignors as users name them: of the registry, of a design, of Java, or the user's own.

**Rules.** A name of the registry or of a design, or a Java class, stays a name. Any other name
with a dot is a factory of the user, ``package.module.factory`` or ``package.module:factory``. An
object is an assignor of the user, or a factory. A factory is called without arguments for each
client. What comes out must have everything in
:class:`~holdfast.core.machine.leader.designs.Assignor`.

**Strategy.** ``Consumer``, ``Worker`` and the plain assignors for stock clients all call
:func:`resolve`.

References: KIP-726 ("assignors are user-customisable"); Incremental Cooperative Rebalancing,
"General Approach" (an application provides its own policies).
"""

from __future__ import annotations

import importlib
from typing import cast

from holdfast.core.assignors.registry import ASSIGNORS, canonical
from holdfast.core.machine.leader.designs import Assignor
from holdfast.core.machine.offers import Offered, lacks_group
from holdfast.core.machine.policies import DESIGNS
from holdfast.errors import ConfigError, LocalProtocolError, suggest

_PARTS = ("name", "modes", "subscribe", "read", "lead", "stay")


def resolve(given: object) -> Offered:
    """What a list of assignors means by one of its entries.

    Parameters
    ----------
    given : str, Assignor or callable
        As a user wrote it.

    Returns
    -------
    str or Assignor
        A name of the registry or of a design, or the user's own assignor.

    Raises
    ------
    ConfigError
        An unknown name, a factory that cannot be imported or raises, or an object that is no
        assignor.
    """
    if not isinstance(given, str):
        return _checked(given, repr(given))
    name = canonical(given)
    if name in ASSIGNORS or name in DESIGNS:
        return name
    if "." not in name and ":" not in name:
        raise ConfigError(f"unknown assignor {name!r}; {suggest(name, (*ASSIGNORS, *DESIGNS), 3)}")
    return _checked(_imported(name), name)


def _imported(name: str) -> object:
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"unknown assignor {name!r}: it is no name of the registry and no Java class that "
            f"holdfast knows, and no factory either: {error}"
        ) from error


def _checked(given: object, shown: str) -> Assignor:
    """The assignor itself, or what a factory makes."""
    made = given
    if callable(given) and (isinstance(given, type) or _missing(given)):
        try:
            made = given()
        except Exception as error:
            raise ConfigError(f"assignor {shown}: its factory raised {error!r}") from error
    if missing := _missing(made):
        raise ConfigError(
            f"assignor {shown}: {type(made).__name__} has no {', '.join(missing)}; an assignor has "
            f"{', '.join(_PARTS)}, see holdfast.core.machine.leader.designs.Assignor"
        )
    return cast(Assignor, made)


def _missing(candidate: object) -> list[str]:
    return [part for part in _PARTS if not hasattr(candidate, part)]


def check_group(assignor: Assignor) -> None:
    """Refuse an assignor whose last tie-break takes the group's id, where nobody has told it.

    Raises
    ------
    LocalProtocolError
        With the way to tell it.

    References: KAFKA-5337 (two groups load different members).
    """
    if lacks_group(assignor):
        raise LocalProtocolError(
            f"{assignor.name}: its last tie-break takes the group's id: give "
            f"assignor({assignor.name!r}, group_id=...)"
        )
