"""Altered: modules of SGLang in which some names mean something else, and modules of nothing.

Both the stand-ins for a CPU (`cpu_device`) and those for a GPU without SGLang's compiled kernels (`gpu_device`) are put
in place this way: SGLang's files stay as they are, and every process of an instance sees the same.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


class Nothing:
    """Whatever is asked of it, called or looked up, it is again nothing."""

    def __getattr__(self, _: str) -> Nothing:
        return Nothing()

    def __call__(self, *_: Any, **__: Any) -> Nothing:
        return Nothing()


class Hollow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds these packages and all of their modules, and makes them of nothing."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        del path, target
        hollow = name.partition(".")[0] in self.names
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if hollow else None

    def exec_module(self, module: ModuleType) -> None:
        def lookup(name: str) -> Nothing:
            if name.startswith("__"):
                raise AttributeError(name)
            return Nothing()

        vars(module).update(__version__="0.0", __getattr__=lookup)


class Altered(importlib.abc.MetaPathFinder):
    """Finds modules, and alters them once they have run: by other names, or by a function.

    Those of `bare` are compiled without their assertions.
    """

    def __init__(
        self, names: Mapping[str, dict[str, Any]], patches: Mapping[str, Callable[[ModuleType], None]],
        bare: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.names, self.patches, self.bare = names, patches, bare

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        del target
        if path is None or not (name in self.names or name in self.patches):
            return None
        file = str(Path(next(iter(path))) / f"{name.rpartition('.')[2]}.py")
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, file, self))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, file: str, altered: Altered) -> None:
        super().__init__(name, file)
        self._altered = altered

    def get_code(self, fullname: str) -> CodeType:
        bare = fullname in self._altered.bare
        code: CodeType = compile(Path(self.path).read_bytes(), self.path, "exec", dont_inherit=True, optimize=int(bare))
        return code

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        vars(module).update(self._altered.names.get(module.__name__, {}))
        if module.__name__ in self._altered.patches:
            self._altered.patches[module.__name__](module)
