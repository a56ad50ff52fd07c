"""Faulty kernels: ours with a few words of source replaced, each a fault that some engine has had.

The sources of `kernels.paged` are read, changed and run as modules of another name, so that the
correct kernels hold no trace of any fault. A change whose old text does not occur in the source
exactly as often as it says is an error: the kernel would be correct.

Faults of the arithmetic, of indexing, of masks, of log-sum-exps, of latent keys, and of the kernels
that fill a cache; those that begin at a size are in `faulty_families.py`. Then those that every
certification must catch first, and the search.
"""

from __future__ import annotations

import linecache
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain, islice, repeat
from pathlib import Path
from types import ModuleType

from poolproof.contract.depth import Depth
from poolproof.kernels.check_run import DRAWS_PER_EXAMPLE, in_order
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.checks.check import Outcome
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.fault_family import FaultOfFamily
from poolproof.kernels.faulty_families import FAMILIES
from poolproof.kernels.faulty_quantised import QUANTISED_FAMILIES
from poolproof.kernels.functions.faulty import FUNCTION_FAULTS, catch_function
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.grammar import draw_case
from poolproof.kernels.target import MLA_DECLARATION, KernelTarget, Storage, returning_lse
from poolproof.kernels.torch_lse import LSE_FAMILIES
from poolproof.kernels.torch_mla import MLA_FAMILIES
from poolproof.kernels.torch_sights import SIGHT_FAMILIES

__all__ = [
    "CANARIES",
    "FAULTY_KERNELS",
    "INDEXING_FAULTS",
    "LATENT_FAULTS",
    "LSE_FAULTS",
    "MASK_FAULTS",
    "SOFTMAX_FAULTS",
    "STORAGE_FAULTS",
    "Caught",
    "Change",
    "FaultyKernel",
    "catch",
    "examples_until_caught",
]

PACKAGE = "poolproof.kernels.paged"
# Whoever imports another comes after it.
MODULES = ("tile", "decode", "prefill", "attention", "latent", "cache_write", "block_copy")


@dataclass(frozen=True, slots=True)
class Change:
    """In `module`, `old` becomes `new`, at each of the `times` places where it occurs."""

    module: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class FaultyKernel:
    """One fault. `thread` is where its kind was met, empty for a slip that we made up.

    `checks` are the checks that must see it, at least one; the others are not run on it, because a
    kernel that reads too far may kill the process that runs it.
    """

    id: str
    title: str
    thread: str
    checks: tuple[str, ...]
    changes: tuple[Change, ...]

    def make(self) -> KernelTarget:
        """The faulty kernels as a target, interpreted. Raises ValueError for a stale change."""
        modules = dict(self._modules())
        storage = Storage(
            modules["cache_write"].reshape_and_cache,
            modules["block_copy"].copy_blocks,
            modules["block_copy"].swap_blocks,
        )
        is_latent = any(change.module == "latent" for change in self.changes)
        return KernelTarget(
            name=f"faulty kernel {self.id}",
            attend=returning_lse(
                modules["latent"].paged_latent_attention
                if is_latent
                else modules["attention"].paged_attention
            ),
            declaration=MLA_DECLARATION if is_latent else strict(),
            source=self.title,
            uses_triton=True,
            storage=storage,
        )

    def _modules(self) -> Iterator[tuple[str, ModuleType]]:
        package = f"poolproof_kernel_{self.id.lower()}"
        for name in MODULES:
            text = self._changed(name).replace(f"{PACKAGE}.", f"{package}_")
            module = ModuleType(f"{package}_{name}")
            file = f"<{package}_{name}.py>"
            # Triton reads a kernel's source through the line cache.
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            module.__file__ = file
            sys.modules[module.__name__] = module
            exec(compile(text, file, "exec"), vars(module))  # noqa: S102 -- our own source
            yield name, module

    def _changed(self, name: str) -> str:
        spec = find_spec(f"{PACKAGE}.{name}")
        assert spec is not None, name
        assert spec.origin is not None, name
        text = Path(spec.origin).read_text(encoding="utf-8")
        for change in self.changes:
            if change.module == name:
                if text.count(change.old) != change.times:
                    raise ValueError(
                        f"faulty kernel {self.id}: {change.old!r} stands "
                        f"{text.count(change.old)} times in {name}.py and not {change.times}"
                    )
                text = text.replace(change.old, change.new)
        return text


DENSE = ("dense",)

SOFTMAX_FAULTS = (
    FaultyKernel(
        "S1",
        "no softmax at all: the plain mean of the values",
        "",
        DENSE,
        (
            Change(
                "tile",
                "weights = tl.exp2(scores - base[:, None])",
                'weights = tl.where(scores == float("-inf"), 0.0, 1.0)',
            ),
        ),
    ),
    FaultyKernel(
        "S2",
        "the scale is 2 % too large",
        "",
        DENSE,
        (
            Change("tile", "(scores * scale)", "(scores * (scale * 1.02))"),
            Change("tile", "(scale * LOG2_E)", "(scale * 1.02 * LOG2_E)"),
        ),
    ),
    FaultyKernel(
        "S3",
        "the scale is forgotten",
        "",
        DENSE,
        (
            Change("tile", "(scores * scale)", "scores"),
            Change("tile", "(scale * LOG2_E)", "LOG2_E"),
        ),
    ),
    FaultyKernel(
        "S4",
        "the scale is applied twice",
        "",
        DENSE,
        (
            Change("tile", "(scores * scale)", "(scores * (scale * scale))"),
            Change("tile", "(scale * LOG2_E)", "(scale * scale * LOG2_E)"),
        ),
    ),
    FaultyKernel(
        "S5",
        "the scale of fp8 keys is dropped",
        "https://github.com/flashinfer-ai/flashinfer/issues/4979",
        DENSE,
        (Change("attention", "options.scale * options.key_scale", "options.scale", 2),),
    ),
    FaultyKernel(
        "S6",
        "the scale of fp8 values is dropped in prefill alone",
        "https://github.com/sgl-project/sglang/issues/18904",
        DENSE,
        (Change("attention", "options.value_scale, *_strides(batch)", "1.0, *_strides(batch)"),),
    ),
    FaultyKernel(
        "S7",
        "splits are merged without bringing them to one maximum",
        "https://github.com/flashinfer-ai/flashinfer/issues/58",
        DENSE,
        (
            Change(
                "decode",
                "old = tl.exp2(maximum - higher)",
                'old = tl.where(maximum == float("-inf"), 0.0, 1.0)',
            ),
            Change(
                "decode",
                "new = tl.exp2(split_maxima - higher)",
                'new = tl.where(split_maxima == float("-inf"), 0.0, 1.0)',
            ),
        ),
    ),
    FaultyKernel(
        "S8",
        "the weighted sum of earlier tiles is not rescaled",
        "",
        DENSE,
        (Change("tile", "weighted * rescale[:, None] + product", "weighted + product"),),
    ),
    FaultyKernel(
        "S9",
        "the soft cap is ignored",
        "",
        DENSE,
        (Change("tile", "if HAS_SOFTCAP:", "if HAS_SOFTCAP and False:"),),
    ),
    FaultyKernel(
        "S10",
        "every head has the slope of the first",
        "",
        DENSE,
        (
            Change("decode", "alibi_slopes + heads", "alibi_slopes + heads * 0"),
            Change("prefill", "alibi_slopes + heads", "alibi_slopes + heads * 0"),
        ),
    ),
    FaultyKernel(
        "S11",
        "the slopes are ignored in decode",
        "",
        DENSE,
        (Change("decode", "if HAS_SLOPES:", "if HAS_SLOPES and False:"),),
    ),
    FaultyKernel(
        "S12",
        "the sinks are ignored",
        "",
        DENSE,
        (Change("tile", "if HAS_SINKS:", "if HAS_SINKS and False:"),),
    ),
    FaultyKernel(
        "S13",
        "a sink is added without its maximum",
        "",
        DENSE,
        (Change("tile", "tl.exp2(sinks - highest)", "tl.exp2(sinks)"),),
    ),
    FaultyKernel(
        "S14",
        "-10,000 stands for minus infinity, and real scores are lower",
        "https://github.com/flashinfer-ai/flashinfer/issues/4450",
        DENSE,
        (
            Change(
                "tile",
                'return tl.where(visible, scores, float("-inf"))',
                "return tl.where(visible, scores, -10000.0)",
            ),
        ),
    ),
    FaultyKernel(
        "S15",
        "a query without keys divides 0 by 0",
        "https://github.com/vllm-project/vllm/issues/57094",
        ("empty rows",),
        (Change("tile", "tl.where(total > 0, total, 1.0)", "total"),),
    ),
    FaultyKernel(
        "S16",
        "a query without keys leaves its row as it was",
        "",
        ("empty rows",),
        (
            Change(
                "decode",
                "    row = tl.load(first_rows + sequence).to(tl.int64)\n    addresses = out",
                "    if length == 0:\n        return\n"
                "    row = tl.load(first_rows + sequence).to(tl.int64)\n    addresses = out",
            ),
        ),
    ),
)


INDEXING_FAULTS = (
    FaultyKernel(
        "X1",
        "every query head reads the first head of the cache",
        "",
        DENSE,
        (Change("tile", "addresses = cache + rows[:, None] + head * stride_head",
                "addresses = cache + rows[:, None] + head * 0"),),
    ),
    FaultyKernel(
        "X2",
        "query heads are dealt out to the cache's heads in turn",
        "https://github.com/LMCache/LMCache/issues/3092",
        DENSE,
        (Change("decode", "heads = head * GROUP + members",
                "heads = head + members * num_kv_heads"),),
    ),
    FaultyKernel(
        "X3",
        "every sequence reads the first row of the table",
        "https://github.com/vllm-project/vllm/issues/7018",
        DENSE,
        (Change("decode", "block_tables + sequence * stride_table", "block_tables"),),
    ),
    FaultyKernel(
        "X4",
        "the block size is taken to be 4",
        "https://github.com/flashinfer-ai/flashinfer/issues/4347",
        DENSE,
        (Change("tile", "(positions % BLOCK_SIZE) * stride_slot",
                "(positions % 4 % BLOCK_SIZE) * stride_slot"),),
    ),
    FaultyKernel(
        "X5",
        "the stride of a block is made up from that of a slot",
        "https://github.com/ROCm/aiter/issues/3498",
        (*DENSE, "strides"),
        (Change("tile", "blocks.to(tl.int64) * stride_block",
                "blocks.to(tl.int64) * BLOCK_SIZE * stride_slot"),),
    ),
    FaultyKernel(
        "X6",
        "values are read from the key cache",
        "",
        DENSE,
        (Change("tile", "            value_cache, block_table, positions",
                "            key_cache, block_table, positions"),),
    ),
    FaultyKernel(
        "X7",
        "the last element of a head is not read",
        "",
        DENSE,
        (Change("tile", "(elements < HEAD_SIZE)[None, :]",
                "(elements < HEAD_SIZE - 1)[None, :]"),
         Change("tile", "WHOLE and HEAD_SIZE == HEAD_PADDED", "False")),
    ),
    FaultyKernel(
        "X8",
        "the first block of a long sequence is skipped",
        "",
        DENSE,
        (Change("decode", "begin = tl.maximum(split * SPLIT, first)",
                "begin = tl.maximum(split * SPLIT, tl.minimum(first + BLOCK_SIZE, length - 1))"),),
    ),
    FaultyKernel(
        "X9",
        "offsets are 32 bits wide",
        "https://github.com/vllm-project/vllm/issues/47671",
        ("64-bit offsets",),
        (Change("tile", "blocks.to(tl.int64) * stride_block", "blocks * stride_block"),),
    ),
    FaultyKernel(
        "X10",
        "a chunk of a prompt forgets what is cached before it",
        "",
        DENSE,
        (Change("prefill", "query_positions = length - query_length + numbers",
                "query_positions = numbers"),),
    ),
    FaultyKernel(
        "X11",
        "the row of a decode is its number in the batch, also beside prompts",
        "https://github.com/sgl-project/sglang/issues/20389",
        DENSE,
        (Change("decode", "row = tl.load(first_rows + sequence).to(tl.int64)\n    query_mask",
                "row = sequence\n    query_mask"),),
    ),
    FaultyKernel(
        "X12",
        "tiles follow the block size, so bits depend on it",
        "https://github.com/pytorch/pytorch/issues/182593",
        ("block size",),
        (Change("attention", '"TILE": keys', '"TILE": 32 if batch.block_size > 4 else 16'),),
    ),
    FaultyKernel(
        "X13",
        "splits follow the longest sequence of the batch, so bits depend on it",
        "https://github.com/vllm-project/vllm/issues/51902",
        ("batch of one",),
        (Change("attention", "    first_rows = torch.cumsum",
                "    sizes = TileSizes(16, 16 if longest > 32 else 32, 32, 16)\n"
                "    first_rows = torch.cumsum"),),
    ),
    FaultyKernel(
        "X14",
        "the output is summed up in the output tensor",
        "",
        ("output rows",),
        (Change("decode", "    tl.store(addresses, output, mask=is_element[None, :])",
                "    mask = is_element[None, :]\n"
                "    tl.store(addresses, output + 0 * tl.load(addresses, mask=mask), mask=mask)"),),
    ),
)  # fmt: skip


WHOLE_BLOCKS = "positions < tl.cdiv(end, BLOCK_SIZE) * BLOCK_SIZE"

MASK_FAULTS = (
    FaultyKernel(
        "M1",
        "values behind the last token are loaded, with weights of 0",
        "https://github.com/vllm-project/vllm/issues/641",
        ("value tail", "read set"),
        (Change("tile", "            value_cache, block_table, positions, readable, head,",
                f"            value_cache, block_table, positions, {WHOLE_BLOCKS}, head,"),),
    ),
    FaultyKernel(
        "M2",
        "keys behind the last token are loaded and masked by adding -10,000",
        "https://github.com/vllm-project/vllm/issues/936",
        ("key tail",),
        (Change("tile", "            key_cache, block_table, positions, readable, head,",
                f"            key_cache, block_table, positions, {WHOLE_BLOCKS}, head,"),
         Change("tile", 'return tl.where(visible, scores, float("-inf"))',
                "return scores + tl.where(visible, 0.0, -10000.0)")),
    ),
    FaultyKernel(
        "M3",
        "keys behind the last token are loaded and masked well: no number shows it",
        "https://github.com/vllm-project/vllm/issues/42496",
        ("read set",),
        (Change("tile", "            key_cache, block_table, positions, readable, head,",
                f"            key_cache, block_table, positions, {WHOLE_BLOCKS}, head,"),),
    ),
    FaultyKernel(
        "M4",
        "masked lanes load the null block",
        "https://github.com/vllm-project/vllm/issues/57156",
        ("null block",),
        (Change("tile", "mask = mask & readable[:, None]",
                "mask = mask & (positions >= 0)[:, None]"),),
    ),
    FaultyKernel(
        "M5",
        "the table is read without a mask, past its end",
        "https://github.com/vllm-project/vllm/issues/42494",
        ("read set",),
        (Change("tile", "tl.load(block_table + positions // BLOCK_SIZE, mask=readable, other=0)",
                "tl.load(block_table + positions // BLOCK_SIZE)"),),
    ),
    FaultyKernel(
        "M6",
        "the window is one token too long in prefill",
        "https://github.com/zml/zml/issues/763",
        DENSE,
        (Change("tile", "> query_positions[:, None] - window)",
                ">= query_positions[:, None] - window)"),),
    ),
    FaultyKernel(
        "M7",
        "the window is one token too short in decode",
        "https://github.com/lightseekorg/tokenspeed/issues/578",
        DENSE,
        (Change("decode", "tl.maximum(length - window, 0)",
                "tl.maximum(length - window + (window > 1), 0)", 2),),
    ),
    FaultyKernel(
        "M8",
        "the window is ignored in decode",
        "https://github.com/EricLBuehler/mistral.rs/issues/2094",
        (*DENSE, "behind the window"),
        (Change("decode", "tl.maximum(length - window, 0)", "tl.maximum(length - length, 0)", 2),),
    ),
    FaultyKernel(
        "M9",
        "values in front of the window are loaded, with weights of 0",
        "",
        ("behind the window", "read set"),
        (Change("tile", "            value_cache, block_table, positions, readable, head,",
                "            value_cache, block_table, positions, positions < end, head,"),),
    ),
    FaultyKernel(
        "M10",
        "a query does not see its own position",
        "",
        DENSE,
        (Change("tile", "positions[None, :] <= query_positions[:, None]",
                "positions[None, :] < query_positions[:, None]"),),
    ),
    FaultyKernel(
        "M11",
        "queries of a prompt see later keys of their tile",
        "",
        DENSE,
        (Change("tile", "positions[None, :] <= query_positions[:, None]",
                "positions[None, :] < end"),),
    ),
    FaultyKernel(
        "M12",
        "the last token is not seen in decode",
        "",
        DENSE,
        (Change("decode", "end = tl.minimum(split * SPLIT + SPLIT, length)",
                "end = tl.minimum(split * SPLIT + SPLIT, tl.maximum(length - 1, 1))"),),
    ),
    FaultyKernel(
        "M13",
        "one token too many is seen in decode",
        "",
        DENSE,
        (Change("decode", "end = tl.minimum(split * SPLIT + SPLIT, length)",
                "end = tl.minimum(split * SPLIT + SPLIT, length + 1)"),),
    ),
    FaultyKernel(
        "M14",
        "the last block is taken to be full",
        "",
        DENSE,
        (Change("decode", "end = tl.minimum(split * SPLIT + SPLIT, length)",
                "end = tl.minimum(split * SPLIT + SPLIT, tl.cdiv(length, BLOCK_SIZE) * BLOCK_SIZE)",
                ),),
    ),
    FaultyKernel(
        "M15",
        "a last block that is not full is dropped",
        "https://github.com/HabanaAI/vllm-fork/issues/1395",
        DENSE,
        (Change("decode", "end = tl.minimum(split * SPLIT + SPLIT, length)",
                "end = tl.minimum(split * SPLIT + SPLIT, "
                "tl.maximum(length // BLOCK_SIZE * BLOCK_SIZE, 1))"),),
    ),
    FaultyKernel(
        "M16",
        "the last row of a tile of queries is not stored",
        "",
        ("dense", "output rows"),
        (Change("prefill", "    tl.store(addresses + elements[None, :], output, mask=mask)",
                "    mask = mask & (lanes < QUERIES * GROUP - 1)[:, None]\n"
                "    tl.store(addresses + elements[None, :], output, mask=mask)"),),
    ),
)  # fmt: skip


STORAGE_FAULTS = (
    FaultyKernel(
        "C1",
        "a padding token is written into the null block",
        "https://github.com/sgl-project/sglang/issues/36207",
        ("cache write",),
        (Change("cache_write", "    if slot < 0:\n        return\n",
                "    slot = tl.maximum(slot, 0)\n"),),
    ),
    FaultyKernel(
        "C2",
        "numbers are multiplied by the scale of fp8 and not divided",
        "https://github.com/flashinfer-ai/flashinfer/issues/1023",
        ("cache write",),
        (Change("cache_write", "source, target, places, 1.0 / scale",
                "source, target, places, scale"),),
    ),
    FaultyKernel(
        "C3",
        "numbers beyond the range of fp8 are not cut",
        "",
        ("cache write",),
        (Change("cache_write", "numbers = tl.minimum(tl.maximum(numbers, -largest), largest)",
                "numbers = numbers"),),
    ),
    FaultyKernel(
        "C4",
        "the block size is taken to be 4 when a token is stored",
        "https://github.com/flashinfer-ai/flashinfer/issues/527",
        ("cache write",),
        (Change("cache_write", "slot // BLOCK_SIZE * stride_block + slot % BLOCK_SIZE",
                "slot // BLOCK_SIZE * stride_block + slot % 4 % BLOCK_SIZE"),),
    ),
    FaultyKernel(
        "C5",
        "a list of block copies acts one after another",
        "",
        ("block copy",),
        (Change("block_copy", "overwritten = {there for _, there in moved}",
                "overwritten: set[int] = set()"),),
    ),
    FaultyKernel(
        "C6",
        "the last slot of a block is not copied",
        "",
        ("block copy", "swap"),
        (Change("block_copy", "copy_rows[(len(pairs), source.shape[1])]",
                "copy_rows[(len(pairs), max(1, source.shape[1] - 1))]"),),
    ),
    FaultyKernel(
        "C7",
        "blocks are swapped to the place that they had",
        "",
        ("swap",),
        (Change("block_copy", "    _copy(source, destination, pairs)\n\n\ndef _copy",
                "    _copy(source, destination, [(here, here) for here, _ in pairs])\n\n\n"
                "def _copy"),),
    ),
)  # fmt: skip


LSE_FAULTS = (
    FaultyKernel(
        "E1",
        "the sink does not count in the log-sum-exp",
        "",
        DENSE,
        (Change("tile", "    saw_nothing = maximum",
                "    saw = maximum + tl.log2(total)\n    saw_nothing = maximum"),
         Change("tile", "(maximum + tl.log2(sums)) / LOG2_E", "saw / LOG2_E")),
    ),
    FaultyKernel(
        "E2",
        "the log-sum-exp is to the base 2",
        "",
        DENSE,
        (Change("tile", "(maximum + tl.log2(sums)) / LOG2_E", "maximum + tl.log2(sums)"),),
    ),
    FaultyKernel(
        "E3",
        "the log-sum-exp of a query without keys is 0",
        "",
        ("empty rows",),
        (Change("tile", 'lse = tl.where(saw_nothing, float("-inf"),',
                "lse = tl.where(saw_nothing, 0.0,"),),
    ),
    FaultyKernel(
        "E4",
        "the log-sum-exps of a prompt are stored as those of the first head",
        "",
        DENSE,
        (Change("prefill", "lse + rows * stride_lse + heads * stride_lse_head",
                "lse + rows * stride_lse + heads // 8 * stride_lse_head"),),
    ),
    FaultyKernel(
        "E5",
        "the maximum is left out of the log-sum-exp",
        "",
        (*DENSE, "split keys"),
        (Change("tile", "(maximum + tl.log2(sums)) / LOG2_E", "tl.log2(sums) / LOG2_E"),),
    ),
)  # fmt: skip


LATENT_FAULTS = (
    FaultyKernel(
        "A1",
        "the rotary part of latent keys does not count",
        "",
        DENSE,
        (Change("latent", "if ROTARY > 0:", "if ROTARY > 1024:"),),
    ),
    FaultyKernel(
        "A2",
        "the rotary part is read from the begin of a latent key",
        "",
        DENSE,
        (Change("latent", "key_cache + LATENT, table", "key_cache, table"),),
    ),
    FaultyKernel(
        "A3",
        "the rows of a tile are taken head by head and not query by query",
        "",
        DENSE,
        (Change("latent", "return rows // num_heads, rows % num_heads, rows < num_rows",
                "return rows % query_length, rows // query_length, rows < num_rows"),
         Change("latent", "row_positions = length - query_length + queries",
                "row_positions = length - query_length + queries // num_heads", 2)),
    ),
    FaultyKernel(
        "A4",
        "splits of drafts see the keys of later drafts",
        "",
        DENSE,
        (Change("latent", "positions[None, :] <= positions_of_rows[:, None]",
                "positions[None, :] < end"),),
    ),
    FaultyKernel(
        "A5",
        "the partial results of two sequences share their place",
        "",
        DENSE,
        (Change("latent", "partial = tl.load(first_partials + sequence).to(tl.int64) + queries",
                "partial = tl.load(first_partials + sequence).to(tl.int64) // 4 + queries"),),
    ),
    FaultyKernel(
        "A6",
        "a window over latent keys begins where that of the last query of its tile does",
        "",
        DENSE,
        (Change("latent", "tl.min(row_positions, axis=0) - window + 1",
                "tl.max(row_positions, axis=0) - window + 1"),
         Change("latent", "tl.min(queries, axis=0) - window + 1",
                "tl.max(queries, axis=0) - window + 1")),
    ),
    FaultyKernel(
        "A7",
        "the scale of fp8 is dropped from latent values",
        "",
        DENSE,
        (Change("latent", "options.value_scale", "1.0", 2),),
    ),
    FaultyKernel(
        "A8",
        "each draft is merged as far as the last one sees",
        "",
        DENSE,
        (Change("latent", "lengths = torch.minimum(lengths, seen.clamp(min=0))",
                "lengths = torch.minimum(lengths, seen.clamp(min=1) // sizes.split * sizes.split)"),
         ),
    ),
    FaultyKernel(
        "A9",
        "each draft is merged from where the last one's window begins",
        "",
        DENSE,
        (Change("latent", "    if options.causal:\n", "    if False:\n"),),
    ),
)  # fmt: skip


_OURS = (
    *SOFTMAX_FAULTS,
    *INDEXING_FAULTS,
    *MASK_FAULTS,
    *STORAGE_FAULTS,
    *LSE_FAULTS,
    *LATENT_FAULTS,
)
_TORCH_FAMILIES = (*FAMILIES, *LSE_FAMILIES, *MLA_FAMILIES, *QUANTISED_FAMILIES, *SIGHT_FAMILIES)

FAULTY_KERNELS: dict[str, FaultyKernel | FaultOfFamily] = {
    **{faulty.id: faulty for faulty in _OURS},
    **{faulty.id: faulty for family in _TORCH_FAMILIES for faulty in family.faults()},
    **FUNCTION_FAULTS,
}

CANARIES = ("S1", "S7", "X3", "M1", "M3", "M6", "X9", "C5")
"""One fault of each kind; a certification that misses one of them says nothing."""

Caught = dict[str, int]
"""For each check that was asked, how many examples it took; a check that saw nothing is missing."""


def examples_until_caught(
    target: KernelTarget, check_name: str, seed: int = 0, most: int = 150
) -> int | None:
    """How many examples a check needs to see that something is wrong, None if it never does.

    The examples are those of a quick run, and more small ones up to `most`. A kernel that raises
    is seen as well.
    """
    check, draw = CHECKS[check_name], random.Random(seed)
    order = in_order(check, target, Depth.QUICK, draw.randrange)
    for number, drawn in enumerate(islice(chain(order, repeat(draw_case)), most), 1):
        for _ in range(DRAWS_PER_EXAMPLE):
            case = drawn(draw.randrange, target.declaration)
            # A kernel that reads one entry too far finds the null block there, not other memory.
            case = replace(case, spare_entries=max(1, case.spare_entries))
            try:
                outcome = check.run(target, case)
            except Exception as error:  # noqa: BLE001 -- it is faulty: whatever it raises is seen
                outcome = Outcome(1, repr(error))
            if outcome.compared:
                break
        if outcome.wrong is not None:
            return number
    return None


def catch(faulty: FaultyKernel | FaultOfFamily, seed: int = 0) -> Caught:
    """Which of its checks see a faulty kernel, or a faulty function beside it."""
    target = faulty.make()
    if isinstance(target, FunctionTarget):
        return catch_function(target, faulty.checks, seed)
    counts = {name: examples_until_caught(target, name, seed) for name in faulty.checks}
    return {name: count for name, count in counts.items() if count is not None}


def strict() -> Declaration:
    """What our own kernels promise: everything."""
    return Declaration(out=True, lse="e")
