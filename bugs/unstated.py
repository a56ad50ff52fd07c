"""Public threads without a specimen of their own: which share one, and which cannot be stated.

A bug can only be planted where a contract promises what it breaks. What is listed as unstated
breaks something that no level of the contract speaks of, and the reason says what that is.
"""

from __future__ import annotations

__all__ = ["SHARED", "UNSTATED"]

SHARED = {
    "dynamo#13398": "A1",
    "lmdeploy#4700": "H1",
    "vllm#6849": "B2",
    "ATOM#902": "B4",
    "vllm#8240": "C4",
    "vllm#56656": "C11",
    "sglang#35270": "C17",
    "vllm#4764": "D4",
    "kvcached#401": "D7",
    "vllm#7193": "E7",
    "vllm#5411": "E7",
    "vllm#25067": "F6",
    "vllm#56089": "F6",
    "LMCache#3004": "F6",
}
"""The specimen, of any level, that has the mechanism of a thread."""

UNSTATED = {
    "TensorRT-LLM#12892": "a hit on a part of a block is copied to a block of one's own before it "
    "is used: at manager level hits are whole blocks, and an admission orders no copies",
    "vllm#21161": "the root of all hashes is drawn anew in each process: the contract compares "
    "what one manager does, and never the hashes of two processes",
    "llm-d-router#2927": "a listener takes the name of an adapter for an image: the contract ends "
    "where events leave the pool",
}
"""Why a thread's bug cannot be stated."""
