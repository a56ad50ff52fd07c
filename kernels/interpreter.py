"""Whether the kernels are compiled for a GPU or interpreted on the CPU; one of the two a process.

Triton decides when a kernel is defined, by the variable TRITON_INTERPRET, so it has to be set
before the first kernel is imported. Without a GPU there is nothing to decide.
"""

from __future__ import annotations

import importlib.util
import os

from poolproof.contract.target import TargetError

__all__ = ["choose_interpreter", "is_interpreted", "missing_packages"]

VARIABLE = "TRITON_INTERPRET"


def missing_packages() -> list[str]:
    """Which of the packages that kernels need are not installed."""
    return [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]


def choose_interpreter(device: str | None = None) -> str:
    """Interpret unless there is a GPU, or as asked for; "cuda" or "cpu" is returned.

    Call it before anything of `kernels.paged` is imported. Raises TargetError for "cuda" where
    there is none.
    """
    # Or else the question sets up CUDA, and no process that forks from this one can use it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    if device is None and VARIABLE in os.environ:
        return "cpu" if is_interpreted() else "cuda"
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise TargetError("no CUDA device is visible to torch; leave out --device cuda")
    if device is None:
        device = "cuda" if has_gpu else "cpu"
    os.environ[VARIABLE] = "1" if device == "cpu" else "0"
    return device


def is_interpreted() -> bool:
    """Whether kernels that are defined now run in the interpreter."""
    return os.environ.get(VARIABLE, "0").lower() in {"1", "true", "on", "yes"}
