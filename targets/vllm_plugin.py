"""vLLM's way in (`vllm.general_plugins`): off unless POOLPROOF_WATCH says otherwise.

vLLM calls `register` in each of its processes. Where the watch is off, nothing is imported, neither
of vLLM nor of the rest of Poolproof. Where it is on, the class that the server uses as scheduler,
whatever it is, gets a constructor that taps the new scheduler when it stands (`vllm_watch.py`).
"""

from __future__ import annotations

import os

__all__ = ["register"]

_has_registered = False


def register() -> None:
    """Tap the schedulers that this process makes from now on. Raises nothing."""
    global _has_registered  # noqa: PLW0603 -- vLLM may call it more than once in a process
    if _has_registered:
        return
    if os.environ.get("POOLPROOF_RECORD"):
        _has_registered = True
        _record()
    if os.environ.get("POOLPROOF_WATCH", "").lower() in {"", "0", "off"}:
        return
    _has_registered = True
    try:
        from poolproof.targets.vllm_watch import tap_schedulers

        tap_schedulers(os.environ)
    except Exception:
        import logging

        logging.getLogger("poolproof.watch").exception(
            "the watch cannot start, the engine goes on unwatched"
        )


def _record() -> None:
    try:
        from poolproof.targets.vllm_record import record_schedulers

        record_schedulers(os.environ)
    except Exception as error:
        import logging

        logging.getLogger("poolproof.record").error(  # noqa: TRY400 -- one line
            "nothing is recorded, the engine goes on: %s", error
        )
