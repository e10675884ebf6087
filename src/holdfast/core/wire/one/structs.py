"""An array of structs, kept as one flat list of values; a struct becomes a dict on request.

**Rules.** The array compares, iterates and is sliced like the tuple of its dicts. It cannot be
hashed, because dicts cannot. A caller may change a dict that it received: the array does not
change.

**Strategy.** A dict takes about 200 bytes, while the smallest struct on the wire takes three. A
hostile message must not fill the memory at that rate. In the flat list a value takes eight bytes
for its slot, and its own size, which is 0 for an empty value.

References: KIP-482 (compact types: an empty string, array or set of tags is one byte).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, overload


class Structs(Sequence[dict[str, Any]]):
    """Structs of one array.

    Parameters
    ----------
    names : tuple of str
        Fields of each struct, at least one.
    values : list
        Values of the first struct, then of the second, and so on; the object takes over the list.
    """

    __slots__ = ("_names", "_values")

    def __init__(self, names: tuple[str, ...], values: list[Any]):
        assert len(values) % len(names) == 0
        self._names = names
        self._values = values

    def __len__(self) -> int:
        return len(self._values) // len(self._names)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        values, width = iter(self._values), len(self._names)
        for _ in range(len(self)):
            yield dict(zip(self._names, islice(values, width), strict=True))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[dict[str, Any], ...]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | tuple[dict[str, Any], ...]:
        found = range(len(self))[index]
        return self._one(found) if isinstance(found, int) else tuple(map(self._one, found))

    def _one(self, index: int) -> dict[str, Any]:
        width = len(self._names)
        values = self._values[index * width : (index + 1) * width]
        return dict(zip(self._names, values, strict=True))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Structs) and self._names == other._names:
            return self._values == other._values
        if not isinstance(other, Structs | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment] # as of a tuple of dicts

    def __repr__(self) -> str:
        return repr(tuple(self))
