"""The profile of a pool: the choices that engines make differently without being wrong.

Checks the keyword arguments of `poolproof.impl.block_pool.BlockPool` and describes the instance.
What each value means is told where it is carried out, in the pool.
"""

from __future__ import annotations

CHOICES: dict[str, tuple[str, ...]] = {
    "eviction": ("lru", "unhashed-first", "lifo"),
    "duplicates": ("kept", "first", "last"),
    "recache": ("replace", "forbidden"),
    "null_in_lists": ("misuse", "ignored"),
    "keys": ("block", "partial"),
    "events": ("none", "per-copy", "per-hash"),
    "misuse": ("raises", "ignores", "undefined"),
}


def require_sizes(num_blocks: int, enable_caching: bool, null_block: int | None) -> None:
    """Raises ValueError unless a pool of this size can be built."""
    if type(num_blocks) is not int or num_blocks < 1:
        raise ValueError(f"num_blocks must be an int of at least 1, not {num_blocks!r}")
    if type(enable_caching) is not bool:
        raise ValueError(f"enable_caching must be True or False, not {enable_caching!r}")
    if null_block is not None and (type(null_block) is not int or not 0 <= null_block < num_blocks):
        raise ValueError(
            f"null_block must be None or a block id from 0 to {num_blocks - 1}, not {null_block!r}"
        )


def describe(null_block: int | None, chosen: dict[str, str]) -> dict[str, str | int | None]:
    """The profile of a pool, `chosen` having a value for every key of `CHOICES`.

    Raises ValueError, naming the argument and what is allowed, for an unknown value.
    """
    for name, value in chosen.items():
        if value not in CHOICES[name]:
            allowed = ", ".join(repr(choice) for choice in CHOICES[name])
            raise ValueError(f"{name} must be one of {allowed}, not {value!r}")
    return {"null_block": null_block, **chosen, "retention": "exact"}
