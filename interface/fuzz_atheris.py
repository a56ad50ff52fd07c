"""`poolproof fuzz --engine atheris`: workers whose tapes libFuzzer makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.fuzz.atheris_driver import is_installed, work_with_atheris
from poolproof.fuzz.folder import FolderError
from poolproof.fuzz.workers import LocalWorkers
from poolproof.harness.isolation import Isolation

__all__ = ["ATHERIS", "atheris_workers", "check_atheris"]

ATHERIS = "atheris"

FOLDER = "libfuzzer"
"""Below a campaign's folder: libFuzzer's own corpus, which the next session begins with."""


def check_atheris(*, in_process: bool = False) -> None:
    """Raises TargetError where libFuzzer cannot be had, or would end the process at hand."""
    if not is_installed():
        raise TargetError("--engine atheris needs Atheris: pip install 'poolproof[atheris]'")
    if in_process or not Isolation.is_available:
        raise TargetError(
            "--engine atheris needs child processes, since libFuzzer never gives its own back; "
            "leave out --in-process"
        )


def atheris_workers(isolation: Any, num_workers: int, folder: Path | None) -> LocalWorkers:
    """The workers; a campaign's folder keeps libFuzzer's corpus. Raises FolderError."""
    shared = None
    if folder is not None:
        shared = folder / FOLDER
        try:
            shared.mkdir(exist_ok=True)
        except OSError as error:
            raise FolderError(
                f"cannot make {shared} for libFuzzer's corpus: {error.strerror}"
            ) from error
    return LocalWorkers(isolation, num_workers, work_with_atheris, shared)
