"""What a written test needs of vLLM: a server where a trace can be played on one, or a scheduler.

A server runs a model of random weights on a CPU, and its users' tokens are compared with those that
it gives without a prefix cache. That plays what comes of prompts alone: of a request that samples
several tokens each would fill a part of a block that no token of the prompt fills, and which tokens
a model samples nobody can choose. So requests of one token each, in steps one at a time, with one
group of full attention and no keys beside the tokens. All else is played on the scheduler with a
simulated worker, as vLLM's own tests of it do.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from poolproof.contract.commands import Command, Reset
from poolproof.contract.engine_commands import AnswerStep, Arrive, Cancel, PlanStep, Submit
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import FULL
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.targets import vllm_llm_alone, vllm_scheduler_alone
from poolproof.targets.reproducer import Reproducer
from poolproof.targets.vllm_engine_setups import SETUPS, EngineSetup

__all__ = ["VLLM_ENGINE_REPRODUCER"]

_CPU_BLOCK_SIZE = 32
_QUIET = (
    "os.environ.update(",
    '    VLLM_ENABLE_V1_MULTIPROCESSING="0",',
    '    VLLM_CPU_KVCACHE_SPACE="1",',
    '    VLLM_LOGGING_LEVEL="ERROR",',
    '    VLLM_NO_USAGE_STATS="1",',
    '    HF_HUB_OFFLINE="1",',
    ")",
)


def _setup_of(trace: Trace) -> EngineSetup:
    name = trace.options.get("layout")
    for setup in SETUPS:
        if setup.name == name:
            return setup
    known = ", ".join(setup.name for setup in SETUPS)
    raise TargetError(f"the trace is of set-up {name!r}, and vLLM's are {known}")


def _block_size(trace: Trace) -> int:
    return int(trace.options.get("block_size", 1))


def _longest_request(trace: Trace, num_groups: int = 1) -> int:
    """As many tokens as the blocks hold: a server starts with no more."""
    return min(4096, max(1, (trace.num_blocks - 1) // num_groups * _block_size(trace)))


def _setting(trace: Trace, _folder: Path | None) -> list[str] | None:
    """The scheduler alone; None where it has more beside it than a written test builds."""
    setup = _setup_of(trace)
    if setup.image_tokens or setup.reset_preempts or setup.has_grammars:
        return None
    if setup.pipeline_stages > 1 or setup.sleeps:
        return None
    arguments = setup.engine_arguments()
    fixed = ("skip_tokenizer_init", "enforce_eager", "dtype", "block_size", "enable_prefix_caching")
    constants = {
        "NUM_BLOCKS": trace.num_blocks,
        "BLOCK_SIZE": _block_size(trace),
        "ENABLE_CACHING": trace.enable_caching,
        "IS_ASYNC": setup.is_async,
        "TAKES_DRAFTS": setup.draft_tokens > 0 and not setup.is_async,
        "LONGEST_REQUEST": _longest_request(trace, len(setup.groups)),
        "ARGUMENTS": {name: arguments[name] for name in arguments if name not in fixed},
        "ATTENTION": [(group.kind, group.window) for group in setup.groups],
    }
    return [
        "import os",
        "from typing import Any",
        "",
        *_QUIET,
        *(f"{name} = {value!r}" for name, value in constants.items()),
        "",
        "",
        *_source(vllm_scheduler_alone, "class SchedulerAlone:"),
    ]


def _own_test(trace: Trace, name: str) -> list[str] | None:
    """A server with a model, where the trace can be played on one."""
    setup = _setup_of(trace)
    if not _can_be_served(trace, setup):
        return None
    scale = _CPU_BLOCK_SIZE // _block_size(trace)
    profile = trace.profile
    assert isinstance(profile, EngineProfile)
    scaled = {
        name: value * scale if name == "long_prefill_token_threshold" else value
        for name, value in setup.arguments.items()
    }
    most = max(max(c.chain.tokens) for c in trace.commands if isinstance(c, Submit))
    constants = {
        "NUM_BLOCKS": trace.num_blocks,
        "BLOCK_SIZE": _CPU_BLOCK_SIZE,
        "SCALE": scale,
        "LONGEST_REQUEST": _longest_request(trace) * scale,
        "VOCABULARY": -(-(3 + (most + 1) * scale) // 512) * 512,
        "HAS_PRIORITIES": setup.policy == "priority",
        "ARGUMENTS": {
            "scheduling_policy": setup.policy,
            "max_num_seqs": setup.max_running,
            "max_num_batched_tokens": setup.max_batch_tokens * scale,
            **scaled,
        },
    }
    return [
        "from __future__ import annotations",
        "",
        "import json",
        "import math",
        "import os",
        "import tempfile",
        "from array import array",
        "from collections.abc import Callable",
        "from pathlib import Path",
        "from random import Random",
        "from typing import Any",
        "",
        *_QUIET,
        *(f"{name} = {value!r}" for name, value in constants.items()),
        "",
        "",
        *_source(vllm_llm_alone, "def write_model(folder: str) -> None:"),
        "",
        "",
        "def play(server: SteppedServer) -> None:",
        '    """The requests of the trace, and its steps."""',
        *(f"    {call}" for command in trace.commands for call in _calls(command)),
        "",
        "",
        f"def {name}() -> None:",
        "    check_answers(play)",
    ]


def _can_be_served(trace: Trace, setup: EngineSetup) -> bool:
    submitted = [command for command in trace.commands if isinstance(command, Submit)]
    is_read = trace.violation is not None and trace.violation.invariant == "DATA"
    has_more = setup.is_async or setup.draft_tokens or setup.has_grammars or setup.sleeps
    is_plain = not has_more and setup.groups == FULL
    # A server plans a step and answers it at once.
    at_once = all(
        isinstance(after, AnswerStep)
        for before, after in pairwise([*trace.commands, PlanStep()])
        if isinstance(before, PlanStep)
    )
    return (
        is_read
        and is_plain
        and at_once
        and trace.enable_caching
        and bool(submitted)
        and _CPU_BLOCK_SIZE % _block_size(trace) == 0
        and not any(isinstance(command, Arrive) for command in trace.commands)
        and all(c.max_new_tokens == 1 and not c.chain.extra_keys() for c in submitted)
    )


def _calls(command: Command) -> list[str]:
    match command:
        case Submit(request_id=number, chain=chain, max_new_tokens=most, priority=priority):
            return [f'server.submit("{_name(number)}", {list(chain.tokens)}, {most}, {priority})']
        case Cancel(request_id=number):
            return [f'server.cancel("{_name(number)}")']
        case Reset():
            return ["server.reset()"]
        case PlanStep():
            return []  # it is answered by the next command
        case _:
            return ["server.step()"]


def _name(number: int) -> str:
    """As sentences call a request."""
    round_number, letter = divmod(number, 26)
    return chr(ord("A") + letter) + (str(round_number) if round_number else "")


def _source(module: Any, first: str) -> list[str]:
    lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    return lines[lines.index(first) :]


VLLM_ENGINE_REPRODUCER = Reproducer(_setting, _own_test)
"""vLLM's own server, or its scheduler alone."""
