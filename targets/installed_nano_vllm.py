"""The block manager of nano-vLLM, from a checkout given by its path or from a published port.

nano-vLLM is on no package index. `nano-vllm:PATH` takes a checkout (or any folder with a package
that has `engine/block_manager.py`); without a path it is nano-vllm-npu 0.0.2, a port whose
`block_manager.py` is nano-vLLM's of commit df99418 with another package name. Read unmodified:
`sampling_params.py`, `engine/sequence.py`, `engine/block_manager.py`; they need xxhash and NumPy.
Nothing is stubbed; the package's `__init__`, which loads PyTorch and the model, is not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.engine_folder import engine_folder
from poolproof.targets.source_package import import_from_source

__all__ = ["NANO_VLLM_PORT", "NanoVllm", "nano_vllm"]

NANO_VLLM_PORT = "nano-vllm-npu-0.0.2"
"""The port that stands in where no checkout is named; also the name of its folder."""

_BLOCK_MANAGER = "engine/block_manager.py"
_MODULES = ("sampling_params", "engine.sequence", "engine.block_manager")


@dataclass(frozen=True)
class NanoVllm:
    """What the adapter uses, by the engine's own names."""

    folder: Path
    BlockManager: Any
    Sequence: Any
    SamplingParams: Any


def nano_vllm(checkout: Path | None = None) -> NanoVllm:
    """The classes of one checkout; several may be loaded side by side.

    Raises TargetError where there is no such package, more than one, or it cannot be imported.
    """
    root = engine_folder(NANO_VLLM_PORT) if checkout is None else checkout.resolve()
    package = _package_in(root)
    modules = import_from_source(package.parent, package.name, _MODULES, {})
    return NanoVllm(
        folder=root,
        BlockManager=modules["engine.block_manager"].BlockManager,
        Sequence=modules["engine.sequence"].Sequence,
        SamplingParams=modules["sampling_params"].SamplingParams,
    )


def _package_in(root: Path) -> Path:
    """The package's folder: `root` itself, or the one folder in it that has a block manager."""
    if (root / _BLOCK_MANAGER).is_file():
        return root
    found = sorted(path.parent.parent for path in root.glob(f"*/{_BLOCK_MANAGER}"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise TargetError(f"{root} holds several packages ({names}); name one of them")
    what = "is not a folder" if not root.is_dir() else f"holds no package with {_BLOCK_MANAGER}"
    raise TargetError(
        f"{root} {what}; clone nano-vLLM and give its folder, as nano-vllm:path/to/nano-vllm"
    )
