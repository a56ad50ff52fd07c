"""What a faulty kernel is: a few words of our kernels' source replaced, and which checks see it.

The sources of `kernels.paged` are read, changed and run as modules of another name, so that the
correct kernels hold no trace of any fault. A change whose old text does not stand in the source
exactly as often as it says is an error: the specimen would be a correct kernel.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget, Storage

__all__ = ["Change", "Specimen"]

PACKAGE = "poolproof.kernels.paged"
# Whoever imports another comes after it.
MODULES = ("tile", "decode", "prefill", "attention", "cache_write", "block_copy")


@dataclass(frozen=True, slots=True)
class Change:
    """In `module`, `old` becomes `new`, at each of the `times` places where it stands."""

    module: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Specimen:
    """One fault. `thread` is where its kind was met, empty for a slip that we made up.

    `checks` are the checks that have to see it, one of them at least; the others are not run on it,
    because a kernel that reads too far may end the process that runs it.
    """

    id: str
    title: str
    thread: str
    checks: tuple[str, ...]
    changes: tuple[Change, ...]

    def make(self) -> KernelTarget:
        """The faulty kernels as a target, interpreted. Raises ValueError for a stale change."""
        modules = dict(self._modules())
        storage = Storage(
            modules["cache_write"].reshape_and_cache,
            modules["block_copy"].copy_blocks,
            modules["block_copy"].swap_blocks,
        )
        return KernelTarget(
            name=f"specimen {self.id}",
            attend=modules["attention"].paged_attention,
            declaration=Declaration(out=True),
            source=self.title,
            uses_triton=True,
            storage=storage,
        )

    def _modules(self) -> Iterator[tuple[str, ModuleType]]:
        package = f"poolproof_kernel_{self.id.lower()}"
        for name in MODULES:
            text = self._changed(name).replace(f"{PACKAGE}.", f"{package}_")
            module = ModuleType(f"{package}_{name}")
            file = f"<{package}_{name}.py>"
            # Triton reads a kernel's source through the line cache.
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            module.__file__ = file
            sys.modules[module.__name__] = module
            exec(compile(text, file, "exec"), vars(module))  # noqa: S102 -- our own source
            yield name, module

    def _changed(self, name: str) -> str:
        spec = find_spec(f"{PACKAGE}.{name}")
        assert spec is not None, name
        assert spec.origin is not None, name
        text = Path(spec.origin).read_text(encoding="utf-8")
        for change in self.changes:
            if change.module == name:
                if text.count(change.old) != change.times:
                    raise ValueError(
                        f"specimen {self.id}: {change.old!r} stands {text.count(change.old)} times "
                        f"in {name}.py and not {change.times}"
                    )
                text = text.replace(change.old, change.new)
        return text
