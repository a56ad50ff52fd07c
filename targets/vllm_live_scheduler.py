"""vLLM's schedulers under watch, for a server's `--scheduler-cls`; imports vLLM.

Each finding is logged as an error and, where POOLPROOF_LIVE_FINDINGS names a file, added to it as
a line of JSON; how many steps were watched is added when the scheduler shuts down. The schedulers
decide exactly what they decide without the watch.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from poolproof.reference.step_oracle import Finding
from poolproof.targets.vllm_live import watch

__all__ = ["WatchedAsyncScheduler", "WatchedScheduler"]

_LOGGER = logging.getLogger("poolproof.live")


def _report(finding: Finding) -> None:
    _LOGGER.error("%s", finding.sentence())
    _append({"sentence": finding.sentence(), **asdict(finding)})


def _append(line: dict[str, Any]) -> None:
    path = os.environ.get("POOLPROOF_LIVE_FINDINGS")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class WatchedScheduler(Scheduler):  # type: ignore[misc]  # vLLM has no types where this is checked
    """The scheduler of a server without asynchronous scheduling."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.poolproof = watch(self, _report)

    def shutdown(self) -> None:
        _append({"watched": asdict(self.poolproof.counts)})
        super().shutdown()


class WatchedAsyncScheduler(AsyncScheduler):  # type: ignore[misc]  # the same
    """The scheduler of a server with asynchronous scheduling."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.poolproof = watch(self, _report)

    def shutdown(self) -> None:
        _append({"watched": asdict(self.poolproof.counts)})
        super().shutdown()
