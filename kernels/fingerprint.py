"""The name of a kernel's finding: the same for every seed, every size and every number in it.

Made of the check, the severity, the sentence without its numbers, and which features the smallest
case needs. So a finding that is accepted does not hide another one of the same check that needs a
window, or fp8, or a prompt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["fingerprint_of"]

_NUMBER = re.compile(r"-?\d[\d.,]*(?:e[+-]?\d+)?|\bnan\b|-?\binf\b")
_OPTIONAL = ("sliding_window", "softcap", "cache_dtype", "alibi", "sinks", "shared_blocks")


def fingerprint_of(check: str, severity: str, sentence: str, case: Mapping[str, Any]) -> str:
    """The letter f, a dash and 8 hexadecimal digits."""
    needs = [name for name in _OPTIONAL if case.get(name)]
    sequences = case.get("sequences", [])
    needs += [] if case.get("causal", True) else ["non_causal"]
    needs += ["several sequences"] * (len(sequences) > 1)
    needs += ["prefill"] * any(queries > 1 for queries, _ in sequences)
    words = "\0".join((check, severity, _NUMBER.sub("#", sentence), *needs))
    return f"f-{hashlib.blake2b(words.encode(), digest_size=4).hexdigest()}"
