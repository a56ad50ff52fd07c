"""Grammars for vLLM's schedulers: structured outputs without a tokenizer.

vLLM's own `StructuredOutputManager` runs. What compiles a grammar, and the thread that does it, are
ours, because they need a vocabulary. A grammar takes two steps to compile, in which its request
waits. It cuts a list of drafts before the first token that it does not have. What a worker samples
always fits: a server masks it.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from poolproof.targets.installed_vllm import engine_module, part_of

__all__ = ["Grammars", "has_grammar"]

_STEPS_TO_COMPILE = 2
_NOT_IN_ANY = 2
"""The token that no grammar lets follow a draft."""
_MASK_WORDS = 2


def has_grammar(request_id: int) -> bool:
    """Every other request has one."""
    return request_id % 2 == 1


class Grammars:
    """The grammars of one scheduler; `manager` is vLLM's."""

    def __init__(self, config: Any) -> None:
        module = engine_module("vllm.v1.structured_output")
        self.manager = part_of(module, "StructuredOutputManager")(config)
        self.manager.backend = self
        self.manager.executor = self
        self._compiling: list[tuple[int, Future[_Grammar]]] = []
        self._num_steps = 0

    def submit(self, _compile: Any, _request: Any) -> Future[_Grammar]:
        """As an executor: what is to be compiled is ready some steps later."""
        future: Future[_Grammar] = Future()
        self._compiling.append((self._num_steps + _STEPS_TO_COMPILE, future))
        return future

    def step(self) -> None:
        """A step is about to be planned; what has been compiled by now is there."""
        self._num_steps += 1
        ready = [future for when, future in self._compiling if when <= self._num_steps]
        self._compiling = [each for each in self._compiling if each[0] > self._num_steps]
        for future in ready:
            future.set_result(_Grammar())

    def allocate_token_bitmask(self, num_rows: int) -> Any:
        """As a backend: room for the masks of a step."""
        torch = engine_module("torch")
        return torch.full((num_rows, _MASK_WORDS), -1, dtype=torch.int32)


class _Grammar:
    """A request's, in words of vLLM's `StructuredOutputGrammar`."""

    def accept_tokens(self, _request_id: str, _tokens: list[int]) -> bool:
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens[: tokens.index(_NOT_IN_ANY)] if _NOT_IN_ANY in tokens else tokens

    def rollback(self, num_tokens: int) -> None:
        """It has no state."""

    def fill_bitmask(self, bitmask: Any, row: int) -> None:
        bitmask[row].fill_(-1)

    def is_terminated(self) -> bool:
        return False
