"""Group to assignment, as pure functions over columns.

The package is also the public function ``holdfast.assign``: Python binds a subpackage to its name
in the parent as soon as anything below it is imported, so ``from holdfast import assign`` finds
this module. Calling it runs :func:`holdfast.assign.registry.assign`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.assign.result import Result
    from holdfast.model.group import Group


class _CallableModule(ModuleType):
    def __call__(self, group: Group, name: str, /, **options: Any) -> Result:
        registry: Any = import_module("holdfast.assign.registry")
        result: Result = registry.assign(group, name, **options)
        return result


sys.modules[__name__].__class__ = _CallableModule
