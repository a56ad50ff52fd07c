"""Faults of the arithmetic: scores, softmax, scales, merge, soft cap, slopes, sinks."""

from __future__ import annotations

from poolproof.kernels.specimens.specimen import Change, Specimen

__all__ = ["SOFTMAX_FAULTS"]

DENSE = ("dense",)

SOFTMAX_FAULTS = (
    Specimen(
        "S1",
        "no softmax at all: the plain mean of the values",
        "",
        DENSE,
        (
            Change(
                "tile",
                "weights = tl.exp(scores - base[:, None])",
                'weights = tl.where(scores == float("-inf"), 0.0, 1.0)',
            ),
        ),
    ),
    Specimen(
        "S2",
        "the scale is 2 % too large",
        "",
        DENSE,
        (Change("tile", "scores = scores * scale", "scores = scores * (scale * 1.02)"),),
    ),
    Specimen(
        "S3",
        "the scale is forgotten",
        "",
        DENSE,
        (Change("tile", "scores = scores * scale", "scores = scores * 1.0"),),
    ),
    Specimen(
        "S4",
        "the scale is applied twice",
        "",
        DENSE,
        (Change("tile", "scores = scores * scale", "scores = scores * (scale * scale)"),),
    ),
    Specimen(
        "S5",
        "the scale of fp8 keys is dropped",
        "https://github.com/flashinfer-ai/flashinfer/issues/4979",
        DENSE,
        (Change("attention", "options.scale * options.key_scale", "options.scale", 2),),
    ),
    Specimen(
        "S6",
        "the scale of fp8 values is dropped in prefill alone",
        "https://github.com/sgl-project/sglang/issues/18904",
        DENSE,
        (Change("attention", "options.value_scale, *_strides(batch)", "1.0, *_strides(batch)"),),
    ),
    Specimen(
        "S7",
        "splits are merged without bringing them to one maximum",
        "https://github.com/flashinfer-ai/flashinfer/issues/58",
        DENSE,
        (
            Change(
                "decode",
                "old = tl.exp(maximum - higher)",
                'old = tl.where(maximum == float("-inf"), 0.0, 1.0)',
            ),
            Change("decode", "new = tl.exp(split_maximum - higher)", "new = tl.exp(higher * 0.0)"),
        ),
    ),
    Specimen(
        "S8",
        "the weighted sum of earlier tiles is not rescaled",
        "",
        DENSE,
        (Change("tile", "weighted * rescale[:, None] + product", "weighted + product"),),
    ),
    Specimen(
        "S9",
        "the soft cap is ignored",
        "",
        DENSE,
        (Change("tile", "if HAS_SOFTCAP:", "if HAS_SOFTCAP and False:"),),
    ),
    Specimen(
        "S10",
        "every head has the slope of the first",
        "",
        DENSE,
        (
            Change("decode", "alibi_slopes + heads", "alibi_slopes + heads * 0"),
            Change("prefill", "alibi_slopes + heads", "alibi_slopes + heads * 0"),
        ),
    ),
    Specimen(
        "S11",
        "the slopes are ignored in decode",
        "",
        DENSE,
        (Change("decode", "if HAS_SLOPES:", "if HAS_SLOPES and False:"),),
    ),
    Specimen(
        "S12",
        "the sinks are ignored",
        "",
        DENSE,
        (Change("tile", "if HAS_SINKS:", "if HAS_SINKS and False:"),),
    ),
    Specimen(
        "S13",
        "a sink is added without its maximum",
        "",
        DENSE,
        (Change("tile", "tl.exp(sinks - highest)", "tl.exp(sinks)"),),
    ),
    Specimen(
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
    Specimen(
        "S15",
        "a query without keys divides 0 by 0",
        "https://github.com/vllm-project/vllm/issues/57094",
        ("empty rows",),
        (Change("tile", "tl.where(total > 0, total, 1.0)", "total"),),
    ),
    Specimen(
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
