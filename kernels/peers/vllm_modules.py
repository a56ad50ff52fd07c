"""vLLM's modules with Triton kernels: compiled on a GPU, interpreted elsewhere.

vLLM for CPUs turns Triton off if no backend for CPUs is installed. During the import a stand-in for
that backend is registered, so that the kernels are defined, and interpreted here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

__all__ = ["NAMES", "dtypes_on", "vllm_module", "vllm_version"]

NAMES = "vllm.v1.attention.ops"


def vllm_module(name: str, device: str) -> Any:
    """The module `name` of the folder with vLLM's kernels."""
    with _backend_for_cpus() if device == "cpu" else nullcontext():
        return importlib.import_module(f"{NAMES}.{name}")


def vllm_version() -> str:
    """As a report prints it."""
    import vllm

    return f"vllm {vllm.__version__}"


def dtypes_on(device: str) -> tuple[str, ...]:
    """Types of kernels that multiply with `tl.dot`, which spoils bfloat16 in the interpreter.

    triton#11584 is about that.
    """
    halves = ("float16",) if device == "cpu" else ("float16", "bfloat16")
    return "float32", *halves


@contextmanager
def _backend_for_cpus() -> Iterator[None]:
    from triton.backends import backends

    missing = "cpu" not in backends
    if missing:
        backends["cpu"] = SimpleNamespace(driver=None)
    try:
        yield
    finally:
        if missing:
            del backends["cpu"]
