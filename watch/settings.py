"""What an operator asks of the watch, by environment variables; docs/live.md lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MODES", "SettingsError", "WatchSettings"]

MODES = ("log", "raise", "quarantine")
_OFF = ("", "0", "off")


class SettingsError(ValueError):
    """A variable has a value that means nothing."""


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """`budget` is a share of the time between steps; `folder` is where folders of runs go."""

    mode: str
    folder: Path = Path("poolproof-watch")
    budget: float = 0.02
    most_findings: int = 1000
    every_s: float = 60.0
    keeps_tokens: bool = False
    key: bytes | None = None
    port: int | None = None

    @classmethod
    def from_environment(cls, values: Mapping[str, str]) -> WatchSettings | None:
        """The settings, None where the watch is off. Raises SettingsError."""
        mode = values.get("POOLPROOF_WATCH", "").strip().lower()
        if mode in _OFF:
            return None
        if mode not in MODES:
            raise SettingsError(
                f"POOLPROOF_WATCH={mode!r} is no mode; write {', '.join(MODES)}, or off"
            )
        key = values.get("POOLPROOF_WATCH_KEY")
        port = values.get("POOLPROOF_WATCH_PORT")
        return cls(
            mode,
            Path(values.get("POOLPROOF_WATCH_DIR") or "poolproof-watch"),
            _number(values, "POOLPROOF_WATCH_BUDGET", 2.0) / 100,
            int(_number(values, "POOLPROOF_WATCH_FINDINGS", 1000)),
            _number(values, "POOLPROOF_WATCH_EVERY", 60.0),
            values.get("POOLPROOF_WATCH_TOKENS") == "1",
            key.encode("utf-8", "backslashreplace")[:64] if key else None,
            int(_number(values, "POOLPROOF_WATCH_PORT", 0)) if port else None,
        )


def _number(values: Mapping[str, str], name: str, otherwise: float) -> float:
    text = values.get(name)
    if not text:
        return otherwise
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise SettingsError(f"{name}={text!r} must be a number from 0 on")
    return number
