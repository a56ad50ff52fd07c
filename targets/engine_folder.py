"""Where the sources of engines lie that are read without being installed.

`make engine-sources` in a checkout of Poolproof fetches pinned wheels and unpacks them below
`build/engines`. They are looked for in the folder that `POOLPROOF_ENGINES` names, else in
`build/engines` below the current folder, else beside Poolproof's own checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

from poolproof.contract.target import TargetError

__all__ = ["ENGINES_VARIABLE", "engine_folder", "how_to_get"]

ENGINES_VARIABLE = "POOLPROOF_ENGINES"
"""Names the folder that holds one folder for each engine, such as `vllm-0.2.7`."""

_BESIDE = Path("build") / "engines"


def engine_folder(name: str) -> Path:
    """The folder of one engine, as `vllm-0.2.7`. Raises TargetError, which says how to get it."""
    looked_at = _places()
    for place in looked_at:
        if (place / name).is_dir():
            return (place / name).resolve()
    raise TargetError(f"{name} is not in {' or '.join(map(str, looked_at))}; {how_to_get(name)}")


def how_to_get(name: str) -> str:
    """The next step for somebody who lacks the engine's sources, as half a sentence."""
    return (
        f"run `make engine-sources` in a checkout of Poolproof, or set {ENGINES_VARIABLE} to the "
        f"folder that holds {name}/"
    )


def _places() -> list[Path]:
    named = os.environ.get(ENGINES_VARIABLE)
    if named:
        return [Path(named)]
    # The second is the same folder once more when Poolproof runs in its own checkout.
    checkout = Path(__file__).resolve().parent.parent
    return list(dict.fromkeys([Path.cwd() / _BESIDE, checkout / _BESIDE]))
