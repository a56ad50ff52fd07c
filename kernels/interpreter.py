"""Whether the kernels are compiled for a GPU or interpreted on the CPU; fixed for a process.

Triton decides when a kernel is defined, by the variable TRITON_INTERPRET, so it has to be set
before the first kernel is imported. Without a GPU there is nothing to decide.

The interpreter is made faster: what it does at every call, but could do once, is done once. It
replaces the built-ins of `triton.language` when a kernel starts, and again at every call of a
jitted function inside, including `tl.sum` and `tl.zeros`, which takes longer than most of those
calls. It also rebuilds its table of types at every look-up. What a kernel computes does not change.
If the private functions that are replaced here are missing (another version of triton), the
interpreter stays as it is.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import Any

from poolproof.contract.target import TargetError

__all__ = [
    "check_overflow",
    "choose_interpreter",
    "is_interpreted",
    "missing_packages",
    "patch_language_once",
    "prepare_interpreter",
]

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


_MARK = "_poolproof_patches_once"


def patch_language_once() -> bool:
    """Install the faster form for this process; False where this triton has another shape."""
    from triton.runtime import interpreter

    original = getattr(interpreter, "_patch_lang", None)
    scope_class = getattr(interpreter, "_LangPatchScope", None)
    if original is None or scope_class is None or not hasattr(scope_class, "restore"):
        return False
    if hasattr(original, _MARK):
        return True
    patched: set[frozenset[str]] = set()

    def patch_lang(function: Any) -> Any:
        # What is patched depends on which of the language's modules the function can see.
        visible = frozenset(
            name
            for value in function.__globals__.values()
            # A global may call anything its name, also what cannot be hashed.
            if isinstance(name := getattr(value, "__name__", ""), str)
            and name in {"triton.language", "triton.language.core"}
        )
        if visible in patched:
            return scope_class()
        scope = original(function)
        if not patched:
            restore = scope.restore

            def restore_all() -> None:
                patched.clear()
                restore()

            scope.restore = restore_all
        patched.add(visible)
        return scope

    setattr(patch_lang, _MARK, True)
    interpreter._patch_lang = patch_lang  # noqa: SLF001 -- the private function, see above
    _remember_numpy_types(interpreter)
    return True


def _remember_numpy_types(interpreter: Any) -> None:
    import triton.language as tl

    original = getattr(interpreter, "_get_np_dtype", None)
    if original is None:
        return
    remembered = functools.cache(original)

    def numpy_type(kind: Any) -> Any:
        # A block has the type of its elements; pointers and blocks cannot be hashed.
        if isinstance(kind, tl.block_type):
            kind = kind.element_ty
        return original(kind) if isinstance(kind, tl.pointer_type) else remembered(kind)

    interpreter._get_np_dtype = numpy_type  # noqa: SLF001 -- the same


def prepare_interpreter() -> None:
    """Both settings of a certification: language patched once, overflow unchecked until asked."""
    if is_interpreted() and not missing_packages():
        patch_language_once()
        check_overflow(checked=False)


def check_overflow(checked: bool) -> None:
    """Whether int32 arithmetic that overflows raises.

    Without, it wraps as on a GPU. Neither TRITON_DEBUG=1 nor debug=True at a launch reach the
    interpreter's options, so they are set directly.
    """
    from triton.runtime import interpreter

    options = interpreter.interpreter_builder.options
    for name in ("debug", "sanitize_overflow"):
        # The options are a frozen dataclass.
        object.__setattr__(options, name, checked)
