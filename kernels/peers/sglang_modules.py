"""SGLang's Triton kernels from its own files, which `make engine-sources` unpacks; unmodified.

Its `__init__` files and its server are not run. `sglang.srt.utils`, which imports them, is a stub
that says which GPU there is.
"""

from __future__ import annotations

from typing import Any

import torch

from poolproof.kernels.catalogue import SGLANG
from poolproof.targets.engine_sources import engine_folder, import_from_source, stub_module

__all__ = ["sglang_module"]

_OPS = "kernels.ops.attention"
_MODULES = (
    "srt.environ",
    f"{_OPS}.score_mod",
    f"{_OPS}.decode_attention",
    f"{_OPS}.extend_attention",
    f"{_OPS}.merge_state",
)


def sglang_module(name: str) -> Any:
    """The module `name` of its folder of attention kernels.

    Raises TargetError, which says how to get what is missing.
    """
    utils = stub_module(
        "sglang.srt.utils",
        get_device_core_count=lambda: 0,
        is_cuda=torch.cuda.is_available,
        is_hip=lambda: False,
        is_gfx95_supported=lambda: False,
        is_gfx1250_supported=lambda: False,
    )
    found = import_from_source(
        engine_folder(SGLANG), "sglang", _MODULES, {"sglang.srt.utils": utils}
    )
    return found[f"{_OPS}.{name}"]
