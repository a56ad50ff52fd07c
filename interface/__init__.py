"""Poolproof: a verification suite for the KV-cache block allocators of LLM servers.

The names in `__all__` are public and stable; the modules below are not. Each name is imported when
it is first used, so that `import poolproof` is cheap and imports no engine. Type checkers read
`__init__.pyi`.
"""

from __future__ import annotations

import os.path
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "AuditFinding",
    "BaselineError",
    "CacheGroup",
    "CampaignSettings",
    "Certificate",
    "CertificateError",
    "ComputedTokens",
    "Depth",
    "EngineProfile",
    "EngineTarget",
    "ExplorationError",
    "Finding",
    "FindingStatus",
    "IndexTarget",
    "InferredProfile",
    "KnownFileError",
    "Level",
    "ManagerProfile",
    "ManagerTarget",
    "NotHeldError",
    "OptionError",
    "PoolTarget",
    "PoolproofError",
    "Profile",
    "ProfileError",
    "ProjectFileError",
    "QueueTarget",
    "RecordingError",
    "RecordingWriter",
    "RepairReport",
    "Replay",
    "RequestMix",
    "RowChange",
    "Severity",
    "StageOutcome",
    "StageResult",
    "StepRecord",
    "Target",
    "TargetError",
    "TargetExploration",
    "TokenChain",
    "Trace",
    "TraceError",
    "TraceHarm",
    "Verdict",
    "Violation",
    "WatchViolation",
    "Watcher",
    "assert_fixed",
    "assert_holds",
    "audit",
    "certify",
    "explore",
    "generate_requests",
    "infer_profile",
    "judge_patch",
    "load_target",
    "render",
    "replay",
    "shrink",
    "tape_test",
    "watch_engine",
    "write_requests",
]

_HOMES = {
    "api": (
        "NotHeldError",
        "assert_fixed",
        "assert_holds",
        "audit",
        "certify",
        "explore",
        "infer_profile",
        "judge_patch",
        "render",
        "replay",
        "shrink",
    ),
    "certification.audit": ("Audit", "AuditFinding"),
    "certification.baseline": ("BaselineError",),
    "certification.certificate": (
        "Certificate",
        "CertificateError",
        "StageOutcome",
        "StageResult",
        "Verdict",
    ),
    "certification.explore_target": ("TargetExploration",),
    "certification.finding": ("Finding", "FindingStatus"),
    "certification.inference": ("InferredProfile",),
    "certification.known_findings": ("KnownFileError",),
    "certification.repair": ("RepairReport",),
    "contract.content": ("TokenChain",),
    "contract.depth": ("Depth",),
    "contract.engine_profile": ("EngineProfile",),
    "contract.engine_target": ("EngineTarget",),
    "contract.errors": ("OptionError", "PoolproofError"),
    "contract.level": ("Level",),
    "contract.manager_profile": ("CacheGroup", "ManagerProfile"),
    "contract.manager_target": ("ManagerTarget",),
    "contract.profile": ("Profile", "ProfileError"),
    "contract.profile_costs": ("RowChange",),
    "contract.recording": ("RecordingError", "RecordingWriter"),
    "contract.step_record": ("ComputedTokens", "StepRecord"),
    "contract.target": ("IndexTarget", "PoolTarget", "QueueTarget", "TargetError"),
    "contract.trace": ("Trace", "TraceError"),
    "contract.trace_harm": ("TraceHarm",),
    "contract.violation": ("Severity", "Violation"),
    "exploration.scope": ("ExplorationError",),
    "fuzz.example_database": ("tape_test",),
    "fuzz.settings": ("CampaignSettings",),
    "harness.replay": ("Replay",),
    "harness.request_generator": ("RequestMix", "generate_requests", "write_requests"),
    "project_file": ("ProjectFileError",),
    "targets.load": ("load_target",),
    "targets.target": ("Target",),
    "targets.watch_engine": ("watch_engine",),
    "watch.watcher": ("WatchViolation", "Watcher"),
}
"""The modules from which the public names are imported."""


def _leave_unfit_aside() -> None:
    """Where modules were compiled, see that they fit before any of them is imported."""
    folder = os.path.dirname(__file__)  # noqa: PTH120 -- pathlib would double the time of the import
    if not os.path.exists(f"{folder}/compiled.json"):  # noqa: PTH110 -- the same
        return
    import importlib
    from pathlib import Path

    importlib.import_module(f"{__name__}.compiled_core").leave_unfit_aside(Path(folder))


_leave_unfit_aside()


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    import importlib

    for module, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, besides what every module has."""
    return sorted({*globals(), *__all__})
