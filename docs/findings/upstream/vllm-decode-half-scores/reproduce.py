"""vLLM's decode kernel with one query head for each head of the cache, in float16.

Needs torch, triton and vLLM, no GPU and not Poolproof: without a GPU Triton interprets the kernel.
Each product of the query and a key is in the range of float16; their sum over the head is not.

Usage: python reproduce.py [no arguments]
"""

import os
import sys
from types import SimpleNamespace

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.backends import backends

    # vLLM turns Triton off where no backend is installed.
    backends.setdefault("cpu", SimpleNamespace(driver=None))

import vllm  # noqa: E402 -- Triton decides at the import whether kernels are interpreted
from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd  # noqa: E402 -- so

SIZE = 128  # of a head


def decode(query, keys, values, heads):
    """The output of one token that asks, for the first of its heads."""
    query = query.expand(1, heads, SIZE).contiguous()
    output, lse = torch.zeros_like(query), torch.zeros(1, heads, device=DEVICE)
    table = torch.arange(len(keys), dtype=torch.int32, device=DEVICE)[None]
    lengths = torch.tensor([len(keys)], dtype=torch.int32, device=DEVICE)
    parts = torch.zeros(1, heads, 1, SIZE + 1, device=DEVICE)
    decode_attention_fwd(
        query, keys, values, output, lse, table, lengths, parts, 1, SIZE**-0.5, page_size=1
    )
    return output[0, 0]


query = torch.full((1, 1, SIZE), 24.0, dtype=torch.float16, device=DEVICE)
keys = torch.full((2, 1, SIZE), 24.0, dtype=torch.float16, device=DEVICE)
values = (
    torch.tensor([1.0, 3.0], device=DEVICE).half()[:, None, None].expand(2, 1, SIZE).contiguous()
)
alone, grouped = decode(query, keys, values, 1), decode(query, keys, values, 2)

print("vllm", vllm.__version__, "on", DEVICE)
print("two equal keys, values 1 and 3: the output is 2")
print("  two query heads to a head of the cache:", grouped[:3].tolist())
print("  one query head to a head of the cache: ", alone[:3].tolist())
sys.exit(0 if torch.equal(alone, grouped) else 1)
