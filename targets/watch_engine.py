"""Puts the watch into an engine that runs in this process, whichever of the known ones it is.

A module of its own, because a server imports it: it brings no more along than the watch needs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from poolproof.contract.errors import OptionError
from poolproof.contract.outside import class_name
from poolproof.contract.target import TargetError
from poolproof.watch.settings import SettingsError, WatchSettings
from poolproof.watch.watcher import Watcher

__all__ = ["watch_engine"]


def watch_engine(
    engine: Any, *, mode: str | None = None, folder: str | Path | None = None
) -> Watcher:
    """Watch an engine of this process from now on: each step, for reads of KV that is not its own.

    An exception of the watch's own switches it off and is logged once; the engine never sees it.
    docs/live.md says what is written where, and what else the environment sets.

    Args:
        engine: vLLM's `LLM` or scheduler; nano-vLLM's `LLMEngine` or `Scheduler`; the
            `ContinuousBatchingManager` of Transformers, or its batch processor.
        mode: "log", "raise" or, for vLLM alone, "quarantine"; what POOLPROOF_WATCH says by default,
            and "log" where it says nothing.
        folder: where the watch keeps its folders; what POOLPROOF_WATCH_DIR says by default.

    Raises OptionError for a mode or a variable that means nothing, and TargetError for an engine
    that is not known, or of which nothing can be watched.
    """
    return _attached(engine, _settings(mode, folder))


def _settings(mode: str | None, folder: str | Path | None) -> WatchSettings:
    values = dict(os.environ)
    if folder is not None:
        values["POOLPROOF_WATCH_DIR"] = os.fspath(folder)
    values["POOLPROOF_WATCH"] = mode or values.get("POOLPROOF_WATCH") or "log"
    try:
        settings = WatchSettings.from_environment(values)
    except SettingsError as error:
        raise OptionError(str(error)) from error
    if settings is None:
        raise OptionError("mode must be log, raise or quarantine: POOLPROOF_WATCH switches it off")
    return settings


def _attached(engine: Any, settings: WatchSettings) -> Watcher:
    if hasattr(engine, "llm_engine") or hasattr(engine, "kv_cache_manager"):
        from poolproof.targets.vllm_live import scheduler_of
        from poolproof.targets.vllm_watch import VllmWatch

        scheduler = engine if hasattr(engine, "kv_cache_manager") else scheduler_of(engine)
        return VllmWatch(scheduler, settings).watcher
    from poolproof.targets.loop_watch import LoopWatch

    if hasattr(engine, "batch_processor") or hasattr(engine, "prepare_next_batch"):
        from poolproof.targets.transformers_watch import TransformersLoop, processor_of

        return LoopWatch(TransformersLoop(processor_of(engine)), settings).watcher
    scheduler = getattr(engine, "scheduler", engine)
    if hasattr(scheduler, "block_manager"):
        from poolproof.targets.nano_watch import NanoLoop

        return LoopWatch(NanoLoop(scheduler), settings).watcher
    raise TargetError(
        f"{class_name(engine)} is no engine that the watch knows: it takes vLLM's LLM or "
        "scheduler, nano-vLLM's LLMEngine or Scheduler, and Transformers' "
        "ContinuousBatchingManager; others tell their steps by poolproof.StepRecord "
        "(docs/live.md#watch-any-engine)"
    )
