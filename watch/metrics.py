"""The watch's figures as Prometheus metrics, in the registry that vLLM shows under /metrics.

vLLM answers /metrics in another process than the one that schedules, so the figures are read from
the status files of the engine cores that this server started. Where several API servers share
their metrics through PROMETHEUS_MULTIPROC_DIR, vLLM shows no other collectors: there
POOLPROOF_WATCH_PORT serves the same figures on a port of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["StatusCollector", "register_metrics", "serve_metrics"]

_BLOCKS = ("live", "reclaimable", "lost")


class StatusCollector:
    """Reads the rows below `folder` of the engine cores that process `server` started."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder, self._server = folder, server

    def describe(self) -> list[Any]:
        """No names in advance: whoever registers it need not read anything."""
        return []

    def collect(self) -> Iterator[Any]:
        """One family after the other, each with a sample for each engine core."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        rows = list(self._rows())
        prefix = "poolproof_watch_"

        def family(kind: Any, name: str, words: str, label: str | None = None) -> Any:
            labels = ["process", *([label] if label else [])]
            return kind(prefix + name, words, labels=labels)

        simple: tuple[tuple[Any, str, str, Callable[[dict[str, Any]], Any]], ...] = (
            (GaugeMetricFamily, "up", "1 while the watch is on",
             lambda row: row["state"] == "watching"),
            (CounterMetricFamily, "steps", "Steps followed", lambda row: row["counts"]["steps"]),
            (GaugeMetricFamily, "checked_share", "Share of reads compared",
             lambda row: row["checked_share"]),
            (GaugeMetricFamily, "step_seconds", "Time of the watch in a step",
             lambda row: row["cost"]["step_ms"] / 1000),
            (GaugeMetricFamily, "cost_share", "Its share of the time between steps",
             lambda row: row["cost"]["share"]),
        )  # fmt: skip
        for kind, name, words, value in simple:
            metric = family(kind, name, words)
            for row in rows:
                metric.add_metric([str(row["pid"])], float(value(row)))
            yield metric
        blocks = family(GaugeMetricFamily, "blocks", "Blocks of the pool", "state")
        violations = family(
            CounterMetricFamily, "violations", "Violations found, by invariant", "invariant"
        )
        for row in rows:
            for state in _BLOCKS:
                blocks.add_metric([str(row["pid"]), state], float(row["pool"][state]))
            # Without a violation there is a sample all the same: an alert needs one to begin with.
            for invariant, number in {"DATA": 0, **row["violations"]}.items():
                violations.add_metric([str(row["pid"]), invariant], float(number))
        yield blocks
        yield violations

    def _rows(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self._folder.glob(f"*-{self._server}-*/status.json")):
            # It may vanish, or be of a later release.
            with contextlib.suppress(OSError, ValueError, KeyError):
                row = json.loads(path.read_text(encoding="utf-8"))
                if row["version"] == 1:
                    yield row


def register_metrics(folder: Path, server: str) -> str | None:
    """Into prometheus_client's registry; a sentence where that cannot be done."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return "there is no prometheus_client here: the watch has no metrics"
    REGISTRY.register(StatusCollector(folder, server))
    return None


def serve_metrics(port: int, folder: Path) -> str | None:
    """On a port of their own; a sentence where that cannot be done."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        server = os.environ.get("POOLPROOF_WATCH_SERVER") or str(os.getpid())
        registry.register(StatusCollector(folder, server))
        start_http_server(port, registry=registry)
    except (ImportError, OSError, OverflowError) as error:
        return f"no metrics on port {port}: {error}; the watch goes on"
    return None
