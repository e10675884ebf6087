"""What a drop-in has besides its consumers: the client's names and errors, ``install()``.

**Rules.** A program changes the module in its import, so every public name of the client exists:
holdfast's where it has one, else the client's. A consumer class of the client that holdfast does
not replace is not forwarded: every consumer of a drop-in is a member of holdfast.

``install()`` is for a program whose framework makes the consumer. Every loaded module that has the
client's class as a global gets holdfast's, under the same name. Modules of holdfast keep the
original, and so do modules that the caller names. A class already derived from the original stays
as it is, and a warning names it. Installations may be nested: they are undone in reverse order.

**Strategy.** :meth:`ClassReplacement.install` looks through ``sys.modules`` once. Modules that are
loaded later find holdfast's class in the client's package. It also holds options for every later
consumer, because many frameworks pass only the options that they know.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from holdfast.errors import RemoteProtocolError, SourceError


def module_attribute(module: str, name: str, late: Mapping[str, str], client: ModuleType) -> Any:
    """Return the object of a drop-in's ``module`` for a name that is not a global.

    Parameters
    ----------
    late : mapping of str to str
        Names of holdfast that are imported on first use: each as ``module:name``.
    client : module
        The client.

    Raises
    ------
    AttributeError
        If the name does not exist, or this version of the client lacks what it needs.
    """
    missing = f"module {module!r} has no attribute {name!r}"
    if name in late:
        home, _, own = late[name].partition(":")
        try:
            return getattr(import_module(home), own)
        except (ImportError, AttributeError) as error:
            raise AttributeError(missing) from error
    if name not in client.__all__ or name.endswith("Consumer"):
        raise AttributeError(missing)
    if hasattr(client, name):
        return getattr(client, name)
    return import_module(f"{client.__name__}.{name}")  # some of the names are modules


class ClassReplacement:
    """Replaced classes, and options that override those of every consumer of a group.

    Parameters
    ----------
    policy, strategy : str
        Names of the options that choose a policy and assignors: an installed policy drops the
        assignors that a framework names by default.
    """

    def __init__(self, *, policy: str, strategy: str):
        self.options: Mapping[str, Any] = {}
        self._policy = policy
        self._strategy = strategy

    def override(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of one consumer, overridden by the installed ones."""
        dropped = {self._strategy} if self._policy in self.options else set()
        kept = {key: value for key, value in options.items() if key not in dropped}
        return {**kept, **self.options}

    def install(
        self,
        ours: Mapping[type, type],
        options: Mapping[str, Any],
        *,
        keeps_original: Callable[[str], bool] = lambda _: False,
    ) -> Callable[[], None]:
        """Replace classes in every loaded module, and the previously installed options.

        Parameters
        ----------
        ours : mapping of type to type
            The client's class -> holdfast's class.
        options : mapping of str to object
            Options for every later consumer.
        keeps_original : callable, optional
            Takes the name of a module; True if the module needs the originals.

        Returns
        -------
        callable
            Restores everything; a second call does nothing.

        Warns
        -----
        RuntimeWarning
            For each class of another module already derived from an original.
        """
        changed = _replace_classes(ours, keeps_original)
        before = [self.options]
        self.options = dict(options)
        for original, mine in ours.items():
            _warn_of_derived(original, mine, keeps_original)

        def undo() -> None:
            while changed:
                module, key, value = changed.pop()
                setattr(module, key, value)
            while before:
                self.options = before.pop()

        return undo


def _replace_classes(
    ours: Mapping[type, type], keeps_original: Callable[[str], bool]
) -> list[tuple[ModuleType, str, type]]:
    """Replace the classes; return the module, name and previous class of each replacement."""
    changed: list[tuple[ModuleType, str, type]] = []
    for name, module in list(sys.modules.items()):
        if (
            name.startswith("holdfast.")
            or keeps_original(name)
            or not isinstance(module, ModuleType)
        ):
            continue  # None where an import is blocked
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and (mine := ours.get(value)) is not None:
                setattr(module, key, mine)
                changed.append((module, key, value))
    return changed


def _warn_of_derived(original: type, mine: type, keeps_original: Callable[[str], bool]) -> None:
    derived: list[type] = original.__subclasses__()
    for kind in derived:
        home = kind.__module__
        if not (issubclass(kind, mine) or home.startswith("holdfast.") or keeps_original(home)):
            warnings.warn(
                f"{home}.{kind.__qualname__} was derived from {original.__qualname__} before "
                f"install(), so its consumers do not use holdfast: call install() before "
                f"{home} is imported",
                RuntimeWarning,
                stacklevel=4,
            )


def translated(classes: Any, error: BaseException) -> Any:
    """Convert an error of holdfast to the client's class with the same code."""
    if isinstance(error, classes.KafkaError):
        return error
    if isinstance(error, RemoteProtocolError) and error.error_code > 0:
        return classes.for_code(error.error_code)(str(error))
    if isinstance(error, SourceError):
        return classes.KafkaConnectionError(str(error))
    return classes.KafkaError(str(error))


def of_connection(classes: Any, error: BaseException) -> Any:
    """Convert an error; one without a class of its own means that no broker has answered."""
    found = translated(classes, error)
    if type(found) is classes.KafkaError:
        return classes.KafkaConnectionError(str(error))
    return found
