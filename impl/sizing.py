"""How many bytes a block takes, and how many blocks fit into the memory that is there.

Exact integer arithmetic for uniform layers of attention. Profiling peak memory is the engine's
business; layers of different shapes have to be summed by the caller.
"""

from __future__ import annotations

from fractions import Fraction


def block_size_bytes(
    block_size_tokens: int,
    num_layers: int,
    num_kv_heads: int,
    head_size: int,
    element_size_bytes: int,
    *,
    num_tensors: int = 2,
) -> int:
    """The memory of one block over all layers.

    tokens x layers x tensors x KV heads x head size x bytes an element. `num_tensors` is 2 for
    keys and values, 1 for a latent that serves as both. With 4 tokens, 4 layers, 8 heads of 128
    and 2 bytes that is 65,536 bytes; a figure of half as much counts keys or values only.
    Raises ValueError unless everything is an int of at least 1.
    """
    factors = {
        "block_size_tokens": block_size_tokens,
        "num_layers": num_layers,
        "num_kv_heads": num_kv_heads,
        "head_size": head_size,
        "element_size_bytes": element_size_bytes,
        "num_tensors": num_tensors,
    }
    product = 1
    for name, factor in factors.items():
        product *= require_int(name, factor, at_least=1)
    return product


def available_kv_bytes(
    total_memory_bytes: int,
    peak_memory_bytes: int,
    memory_utilization: Fraction | float | str,
) -> int:
    """What remains for the KV cache: the share of the device that may be used, less the peak.

    `peak_memory_bytes` is what a profiling run without KV cache took at most. The share is read
    as the decimal that it prints as, so 0.9 means nine tenths exactly. 0 when nothing remains.
    Raises ValueError for negative sizes or a share outside (0, 1].
    """
    require_int("total_memory_bytes", total_memory_bytes, at_least=0)
    require_int("peak_memory_bytes", peak_memory_bytes, at_least=0)
    try:
        share = Fraction(str(memory_utilization))
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise ValueError(
            f"memory_utilization must be above 0 and at most 1, not {memory_utilization!r}"
        )
    return max(0, total_memory_bytes * share.numerator // share.denominator - peak_memory_bytes)


def num_blocks(available_bytes: int, bytes_per_block: int) -> int:
    """How many whole blocks fit; 0 is an answer and not an error.

    Serves device memory and swap space alike. The null block, where there is one, is among them.
    Raises ValueError for negative memory or a block without bytes.
    """
    require_int("available_bytes", available_bytes, at_least=0)
    return available_bytes // require_int("bytes_per_block", bytes_per_block, at_least=1)


def require_int(name: str, value: int, *, at_least: int) -> int:
    """The value. Raises ValueError unless it is an int of at least `at_least`; bool is none."""
    if type(value) is not int or value < at_least:
        raise ValueError(f"{name} must be an int of at least {at_least}, not {value!r}")
    return value
