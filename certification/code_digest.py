"""A digest of the code behind a result: files of results start afresh when it has changed."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path

__all__ = ["SEARCHING", "digest_of"]

SEARCHING = (
    "contract", "invariants", "reference", "impl", "harness", "stateful_tests", "exploration",
    "fuzz", "certification",
)  # fmt: skip
"""The packages that a search for violations goes through."""


def digest_of(*packages: str) -> str:
    """Twelve hexadecimal digits of all source in these packages of ours, tests left out."""
    digest = hashlib.sha256()
    for package in packages:
        module = importlib.import_module(f"poolproof.{package}")
        assert module.__file__ is not None
        folder = Path(module.__file__).parent
        for path in sorted(folder.rglob("*.py")):
            if path.name != "conftest.py" and not path.name.startswith("test_"):
                digest.update(f"{package}/{path.relative_to(folder).as_posix()}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
