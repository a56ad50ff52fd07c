"""A kill matrix as one web page: no script, no network, every public thread linked."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined

from poolproof.kill_matrix.matrix import Matrix, MatrixCell, MatrixRow
from poolproof.kill_matrix.wording import (
    KERNELS,
    LEGEND,
    cell_text,
    conclusions,
    seconds_of,
    steps_of,
    verdict_text,
)
from poolproof.report.wording import in_a_template

__all__ = ["link_of", "matrix_html"]


_REPOSITORIES = {
    "ATOM": "ROCm/ATOM",
    "FastDeploy": "PaddlePaddle/FastDeploy",
    "FreeToken": "FlashML-org/FreeToken",
    "LMCache": "LMCache/LMCache",
    "MinivLLM": "Wenyueh/MinivLLM",
    "NeMo-RL": "NVIDIA-NeMo/RL",
    "TensorRT-LLM": "NVIDIA/TensorRT-LLM",
    "atlas": "Avarok/atlas",
    "dynamo": "ai-dynamo/dynamo",
    "imp": "kekzl/imp",
    "inference-sim": "inference-sim/inference-sim",
    "kvcached": "ovg-project/kvcached",
    "llm-d-inference-sim": "llm-d/llm-d-inference-sim",
    "llm-d-router": "llm-d/llm-d-router",
    "lmdeploy": "InternLM/lmdeploy",
    "mini-sglang": "sgl-project/mini-sglang",
    "mistral.rs": "EricLBuehler/mistral.rs",
    "mllm": "UbiquitousLearning/mllm",
    "model_server": "openvinotoolkit/model_server",
    "nano-vllm": "GeeeekExplorer/nano-vllm",
    "nm-vllm": "neuralmagic/nm-vllm",
    "openvino.genai": "openvinotoolkit/openvino.genai",
    "sglang": "sgl-project/sglang",
    "text-generation-inference": "huggingface/text-generation-inference",
    "tokenspeed": "lightseekorg/tokenspeed",
    "tvm": "apache/tvm",
    "vllm": "vllm-project/vllm",
    "vllm-ascend": "vllm-project/vllm-ascend",
    "vmlx": "jjang-ai/vmlx",
    "xLLM": "xLLM-AI/xllm",
}
"""By the name that specimens use. A project whose place we do not know has no line, and no link."""


def link_of(thread: str) -> str | None:
    """The address of a thread; what may follow the number, such as "(B4)", is left out."""
    named = re.match(r"(?P<project>[\w.-]+)(?P<sign>[#@])(?P<place>\w+)", thread)
    if named is None or named["project"] not in _REPOSITORIES:
        return None
    repository = f"https://github.com/{_REPOSITORIES[named['project']]}"
    # GitHub leads from /issues to /pull where the number is that of a pull request.
    return f"{repository}/{'issues' if named['sign'] == '#' else 'commit'}/{named['place']}"


def matrix_html(matrix: Matrix) -> str:
    """The page; everything that comes from the matrix is escaped."""
    environment = Environment(
        loader=PackageLoader("poolproof.kill_matrix", "templates"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=in_a_template,
    )
    page = environment.get_template("bugs.html").render(
        matrix=matrix,
        groups=[(level, [r for r in matrix.rows if _group(r) == level]) for level in _GROUPS],
        conclusions=conclusions(matrix),
        verdict=verdict_text(matrix),
        legend=LEGEND,
        kernels=KERNELS,
        cell_text=cell_text,
        cell_class=_cell_class,
        cell_title=_cell_title,
        link_of=link_of,
        seconds_of=seconds_of,
        steps_of=steps_of,
    )
    return page + "\n"


_GROUPS = ("queue", "pool", "manager", "oddities, which are right")


def _group(row: MatrixRow) -> str:
    return _GROUPS[-1] if row.is_oddity else row.level


def _cell_class(row: MatrixRow, seen: MatrixCell) -> str:
    if seen.why_not:
        return "none"
    if row.is_oddity:
        return "wrong" if seen.caught else "right"
    return "caught" if seen.caught == seen.of else "partly" if seen.caught else "missed"


def _cell_title(name: str, seen: MatrixCell) -> str:
    """What a cell says when it is pointed at."""
    if seen.why_not:
        return f"{name}: {seen.why_not}"
    said = [f"{name}: caught from {seen.caught} of {seen.of} seeds"]
    if seen.invariants:
        said.append(f"named by {', '.join(seen.invariants)}")
    if seen.seconds is not None:
        said.append(f"{seen.seconds:.3g} s")
    if seen.length is not None:
        said.append(f"shortest trace {seen.length} commands")
    return "; ".join([*said, seen.note] if seen.note else said)
