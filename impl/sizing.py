"""How many bytes a block takes, how many blocks fit, and how many requests they serve.

Exact integer arithmetic; a share or a number of GiB is read as the decimal that it prints as.
Profiling peak memory is the engine's business. Two layouts of the memory are covered: one tensor
a layer, all of one shape (`block_size_bytes`), and the pool of vLLM V1, where groups of layers
share tensors (`pool_block_bytes`); other mixtures of shapes have to be summed by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

GIB = 2**30


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
    return require_int("num_layers", num_layers, at_least=1) * page_size_bytes(
        block_size_tokens, num_kv_heads, head_size, element_size_bytes, num_tensors=num_tensors
    )


def page_size_bytes(
    block_size_tokens: int,
    num_kv_heads: int,
    head_size: int,
    element_size_bytes: int,
    *,
    num_tensors: int = 2,
) -> int:
    """The memory of one block in one layer, with the arguments of `block_size_bytes`."""
    factors = {
        "block_size_tokens": block_size_tokens,
        "num_kv_heads": num_kv_heads,
        "head_size": head_size,
        "element_size_bytes": element_size_bytes,
        "num_tensors": num_tensors,
    }
    product = 1
    for name, factor in factors.items():
        product *= require_int(name, factor, at_least=1)
    return product


def pool_block_bytes(page_size_bytes_of_layers: Sequence[Sequence[int]]) -> int:
    """The memory of one block of a pool that several groups of layers share.

    One list for each group, with the page size of each of its layers. A block belongs to one
    group at a time, and the n-th layers of all groups share a tensor, so a block takes one page a
    tensor, in as many tensors as the largest group has layers. Source: the block pool of vLLM V1,
    which fixes num_blocks = memory // page size // layers of the largest group. Raises ValueError
    when there is no layer, or the pages differ: pad them first.
    """
    pages = [
        require_int("page size in bytes", page, at_least=1)
        for group in page_size_bytes_of_layers
        for page in group
    ]
    if len(set(pages)) != 1:
        raise ValueError(
            f"all layers of a pool need one page size, not {sorted(set(pages))} bytes; "
            "choose block sizes that give equal pages, or pad"
        )
    return pages[0] * max(map(len, page_size_bytes_of_layers))


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
    share = exact_fraction("memory_utilization", memory_utilization)
    if not 0 < share <= 1:
        raise ValueError(
            f"memory_utilization must be above 0 and at most 1, not {memory_utilization!r}"
        )
    return max(0, total_memory_bytes * share.numerator // share.denominator - peak_memory_bytes)


def swap_space_bytes(swap_space_gib: Fraction | float | str) -> int:
    """The bytes of a swap space in GiB (2**30 bytes), the unit in which engines configure it.

    Whole bytes, rounded down. Raises ValueError for a negative number or none at all.
    """
    gib = exact_fraction("swap_space_gib", swap_space_gib)
    if gib < 0:
        raise ValueError(f"swap_space_gib must be at least 0, not {swap_space_gib!r}")
    return gib.numerator * GIB // gib.denominator


def num_blocks(available_bytes: int, bytes_per_block: int) -> int:
    """How many whole blocks fit; 0 is an answer and not an error.

    Serves device memory and swap space alike. The null block, where there is one, is among them.
    Raises ValueError for negative memory or a block without bytes.
    """
    require_int("available_bytes", available_bytes, at_least=0)
    return available_bytes // require_int("bytes_per_block", bytes_per_block, at_least=1)


def blocks_per_sequence(
    num_tokens: int, block_size_tokens: int, *, sliding_window_tokens: int | None = None
) -> int:
    """The most blocks that a sequence of so many tokens holds in one group.

    Under a sliding window whose blocks are used in a ring, at most those of the window. Raises
    ValueError for a negative number of tokens, a block size below 1, or a window that is no
    positive multiple of it.
    """
    require_int("num_tokens", num_tokens, at_least=0)
    require_int("block_size_tokens", block_size_tokens, at_least=1)
    blocks = -(-num_tokens // block_size_tokens)
    if sliding_window_tokens is None:
        return blocks
    require_int("sliding_window_tokens", sliding_window_tokens, at_least=1)
    if sliding_window_tokens % block_size_tokens:
        raise ValueError(
            f"sliding_window_tokens must be a multiple of the block size {block_size_tokens}, "
            f"not {sliding_window_tokens}"
        )
    return min(blocks, sliding_window_tokens // block_size_tokens)


def max_concurrency(
    num_blocks: int, blocks_per_request: int, *, num_reserved_blocks: int = 0
) -> Fraction:
    """How many requests of the longest admissible length the blocks serve at once.

    A fraction, as engines report it ("2.50x"); its floor is the number of whole requests.
    `blocks_per_request` is the sum over the cache groups; `num_reserved_blocks` never serve a
    request, such as the null block. Raises ValueError for negative numbers, a request without
    blocks, or more reserved blocks than there are.
    """
    require_int("num_blocks", num_blocks, at_least=0)
    require_int("blocks_per_request", blocks_per_request, at_least=1)
    require_int("num_reserved_blocks", num_reserved_blocks, at_least=0)
    if num_reserved_blocks > num_blocks:
        raise ValueError(f"{num_reserved_blocks} blocks are reserved, of {num_blocks}")
    return Fraction(num_blocks - num_reserved_blocks, blocks_per_request)


def exact_fraction(name: str, value: Fraction | float | str) -> Fraction:
    """The decimal that the value prints as. Raises ValueError for what is no finite number."""
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{name} must be a number, not {value!r}") from None


def require_int(name: str, value: int, *, at_least: int) -> int:
    """The value. Raises ValueError unless it is an int of at least `at_least`; bool is none."""
    if type(value) is not int or value < at_least:
        raise ValueError(f"{name} must be an int of at least {at_least}, not {value!r}")
    return value
