"""The sequence class that goes with a block manager in nano-vLLM's shape.

A manager reads its sequences through the class that its own module imports; that one is used, as
it is. For a class whose module has none there is a stand-in with every attribute that published
managers read: `token_ids`, `num_tokens`, `num_blocks`, `last_block_num_tokens`, `block(i)`,
`block_table`, `num_cached_tokens`, `num_scheduled_tokens`, `append_token`, `len()`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["StandInSequence", "sequence_maker"]


class StandInSequence:
    """One request; `block_size` is set on a subclass."""

    block_size = 0

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = list(token_ids)
        self.block_table: list[int] = []
        self.num_cached_tokens = 0
        self.num_scheduled_tokens = 0

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, key: Any) -> Any:
        return self.token_ids[key]

    @property
    def num_tokens(self) -> int:
        """How many tokens there are, prompt and output."""
        return len(self.token_ids)

    @property
    def num_blocks(self) -> int:
        """How many blocks they take, the last one perhaps in part."""
        return -(-len(self.token_ids) // self.block_size)

    @property
    def last_block_num_tokens(self) -> int:
        """How many tokens stand in the last block."""
        return len(self.token_ids) - (self.num_blocks - 1) * self.block_size

    @property
    def last_token(self) -> int:
        """The token at the end."""
        return self.token_ids[-1]

    def block(self, index: int) -> list[int]:
        """The tokens of one block."""
        return self.token_ids[index * self.block_size : (index + 1) * self.block_size]

    def append_token(self, token_id: int) -> None:
        """Add a sampled token."""
        self.token_ids.append(token_id)


def sequence_maker(manager_class: type, block_size: int) -> Callable[[list[int]], Any]:
    """From tokens to a sequence that managers of this class take, of blocks of `block_size`.

    nano-vLLM keeps the block size on the class, for all managers of a process; a subclass has its
    own, so that nothing of the engine is changed. A constructor that also wants sampling
    parameters (nano-vLLM before cde3fc2) gets those that its module names.
    """
    found = _in_module_of(manager_class, "Sequence")
    base = found if isinstance(found, type) else StandInSequence
    sequence_class = type("Sequence", (base,), {"block_size": block_size})
    parameters = list(inspect.signature(base).parameters.values())
    required = [p for p in parameters[1:] if p.default is inspect.Parameter.empty]
    if required:
        module: Any = sys.modules[base.__module__]
        sampling_params = module.SamplingParams
        return lambda tokens: sequence_class(tokens, sampling_params())
    return sequence_class


def _in_module_of(cls: type, name: str) -> object:
    """What a name means in the module of the class, or of the nearest base that has it."""
    for base in cls.__mro__:
        module = sys.modules.get(base.__module__)
        if module is not None and hasattr(module, name):
            return getattr(module, name)
    return None
