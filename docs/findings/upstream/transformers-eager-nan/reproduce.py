"""Two requests in one batch of Transformers' continuous batching; the values of one are NaN.

Needs torch and transformers, no GPU, no model and not Poolproof. The attention forward and the mask
are those of Transformers; what is stood in for is the cache's `update`, which gives the keys and
values of the whole batch, one request behind the other, as the real one does.

Usage: python reproduce.py [no arguments]
"""

from types import SimpleNamespace

import torch
import transformers
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.utils import build_attention_mask
from transformers.integrations.eager_paged import eager_paged_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward

KEYS = (3, 5)  # of the two requests, each of which asks for its next token


class Given(PagedAttentionCache):
    def __init__(self, keys, values):
        self.given = keys, values

    def update(self, **asked):
        if "read_index" in asked:  # up to 5.16: heads stand behind the tokens
            return [each[0].transpose(0, 1) for each in self.given]
        return self.given


def outputs(forward, values):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 2, len(KEYS), 16, generator=generator)
    keys = torch.randn(1, 2, sum(KEYS), 16, generator=generator)
    mask = torch.full((1, 1, len(KEYS), sum(KEYS)), torch.finfo(query.dtype).min)
    build_attention_mask(mask, [0, 1, 2], [0, KEYS[0], sum(KEYS)])
    module = SimpleNamespace(layer_idx=0, num_key_value_groups=1, is_causal=True)
    cache = Given(keys, values)
    given = {"cache": cache, "read_index": None, "write_index": None}  # the indices are not read
    output, _ = forward(module, query, keys, values, mask, scaling=0.25, **given)
    return output[0]


print("transformers", transformers.__version__)
for forward in (eager_paged_attention_forward, sdpa_attention_forward):
    values = torch.randn(1, 2, sum(KEYS), 16, generator=torch.Generator().manual_seed(1))
    before = outputs(forward, values)[1]
    values[:, :, 0] = float("nan")  # in the first request's memory
    after = outputs(forward, values)[1]
    print(f"{forward.__name__}: the second request, before and after the first one's value is NaN:")
    print("  before:  ", before.flatten()[:3].tolist())
    print("  expected: the same")
    print("  happens: ", after.flatten()[:3].tolist())
