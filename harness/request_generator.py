"""Generates request traces in the Mooncake format from stated distributions and a seed.

Three sources of shared prefixes, as in public traces: a few system prompts, conversations whose
every turn sends the whole history again, and agents, whose history branches.

- system prompts: `num_system_prompts`, lengths uniform up to `max_system_blocks` ids of 512
  tokens; the k-th most popular one is chosen with weight 1/k (Zipf).
- conversations: a new request goes on with an open conversation with probability
  `continue_probability`, otherwise it opens one; so turns are about geometric. A conversation
  whose history has grown beyond `max_input_length` is closed.
- agents: a new conversation is an agent's with probability `agent_probability`. An agent's turns
  are results of tools, exponential with mean `mean_tool_length`; with probability
  `branch_probability` a turn opens a further conversation on the history so far (a sub-agent)
  instead of going on with its own.
- retries: with probability `retry_probability` the last request is sent again as it was. Where
  its length is a multiple of the block size, its last block is computed twice, which is how two
  blocks come under one hash.
- lengths: what a user adds and what the model answers is exponential with means
  `mean_user_length` and `mean_output_length` (tokens, at least 1).
- arrivals: exponential gaps with mean `mean_gap_ms` (a Poisson process).

Not modelled: rates that change over the day.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from poolproof.contract.trace import write_atomically
from poolproof.harness.request_trace import TOKENS_PER_ID, TraceRequest, request_line

__all__ = ["RequestMix", "generate_requests", "write_requests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMix:
    """The distributions; the module's docstring says what each number means.

    Raises ValueError for a number that makes no distribution.
    """

    num_system_prompts: int = 4
    max_system_blocks: int = 3
    continue_probability: float = 0.6
    agent_probability: float = 0.15
    branch_probability: float = 0.3
    retry_probability: float = 0.05
    mean_user_length: int = 400
    mean_tool_length: int = 150
    mean_output_length: int = 200
    max_input_length: int = 16_384
    mean_gap_ms: float = 300.0

    def __post_init__(self) -> None:
        for name in (
            "continue_probability",
            "agent_probability",
            "branch_probability",
            "retry_probability",
        ):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {getattr(self, name)}")
        if self.num_system_prompts < 1 or self.max_system_blocks < 0:
            raise ValueError("there must be a system prompt, of 0 ids of 512 tokens or more")
        lengths = (self.mean_user_length, self.mean_tool_length, self.mean_output_length)
        if min(*lengths, self.max_input_length) < 1:
            raise ValueError("mean and maximal lengths must be at least 1 token")
        if self.mean_gap_ms <= 0:
            raise ValueError(f"mean_gap_ms must be above 0, not {self.mean_gap_ms}")


@dataclass(slots=True)
class _Conversation:
    """`ids` name the full 512 tokens of the `length` tokens so far."""

    ids: list[int]
    length: int
    is_agent: bool


def generate_requests(seed: int, mix: RequestMix | None = None) -> Iterator[TraceRequest]:
    """Requests without end, the same ones for the same seed."""
    mix = mix or RequestMix()
    choices, new_ids = random.Random(seed), count()
    ranks = range(mix.num_system_prompts)
    prompts = [
        [next(new_ids) for _ in range(choices.randint(0, mix.max_system_blocks))] for _ in ranks
    ]
    weights = [1 / (rank + 1) for rank in ranks]
    open_ones: list[_Conversation] = []
    now_ms = 0.0
    last: TraceRequest | None = None
    while True:
        if last is not None and choices.random() < mix.retry_probability:
            yield replace(last, timestamp_ms=int(now_ms))
            now_ms += choices.expovariate(1 / mix.mean_gap_ms)
            continue
        if open_ones and choices.random() < mix.continue_probability:
            talk = choices.choice(open_ones)
            if talk.is_agent and choices.random() < mix.branch_probability:
                talk = _Conversation(list(talk.ids), talk.length, is_agent=True)
                open_ones.append(talk)
        else:
            (ids,) = choices.choices(prompts, weights)
            is_agent = choices.random() < mix.agent_probability
            talk = _Conversation(list(ids), len(ids) * TOKENS_PER_ID, is_agent)
            open_ones.append(talk)
        added = mix.mean_tool_length if talk.is_agent else mix.mean_user_length
        _grow(talk, _length(choices, added), new_ids)
        output_length = _length(choices, mix.mean_output_length)
        # Full ids alone are known to be shared; what a partial one stands for differs each time.
        partial = [next(new_ids)] if talk.length % TOKENS_PER_ID else []
        last = TraceRequest(int(now_ms), talk.length, output_length, (*talk.ids, *partial))
        yield last
        _grow(talk, output_length, new_ids)
        if talk.length > mix.max_input_length:
            open_ones.remove(talk)
        now_ms += choices.expovariate(1 / mix.mean_gap_ms)


def write_requests(path: Path, requests: list[TraceRequest]) -> None:
    """Write a trace file, whole or not at all. Raises OSError."""
    write_atomically(path, "".join(f"{request_line(request)}\n" for request in requests))


def _grow(talk: _Conversation, num_tokens: int, new_ids: Iterator[int]) -> None:
    talk.length += num_tokens
    while len(talk.ids) < talk.length // TOKENS_PER_ID:
        talk.ids.append(next(new_ids))


def _length(choices: random.Random, mean: int) -> int:
    return 1 + int(choices.expovariate(1 / mean))
