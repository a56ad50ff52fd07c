"""Where the public threads are that specimens name as "project#number" or "project@commit"."""

from __future__ import annotations

import re

__all__ = ["link_of"]

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
