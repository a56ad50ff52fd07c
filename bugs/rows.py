"""The collection of public bugs that the specimens were made from, one row per root cause.

A row has a letter for its kind and names the thread where the cause was told first. Each row has a
specimen of its own (whose id begins with that of the row), or its thread shares one, or says why
it cannot be stated, or was no bug at all and must not be accused.

A bug can only be planted where a contract promises what it breaks. What is listed as unstated
breaks something that no level of the contract speaks of, and the reason says what that is.
"""

from __future__ import annotations

import re

__all__ = ["FALSE_ALARMS", "KINDS", "ROWS", "SHARED", "UNSTATED", "row_of"]


KINDS = {
    "A": "free queue and reference counts",
    "B": "allocation and admission",
    "C": "identity of blocks: what a hash covers",
    "D": "prefix index, and the moment of caching",
    "E": "eviction order",
    "F": "forks, copies on write, swapping",
    "G": "sliding windows and the null block",
    "H": "life cycle: aborts, preemption, transfers",
    "J": "events and resets",
    "X": "retracted: no bug",
}
"""What the letters of the rows stand for."""

ROWS = {
    "A1": "vllm#42571",
    "A2": "dynamo#13398",
    "A3": "vllm#52707",
    "A4": "vllm#24228",
    "A5": "vllm#33875",
    "A6": "MinivLLM#70",
    "A7": "vmlx#68",
    "A8": "vllm#3347",
    "A9": "tvm#16666",
    "A10": "tvm#17045",
    "A12": "TensorRT-LLM#12667",
    "A13": "TensorRT-LLM#12648",
    "A15": "LMCache#993",
    "A16": "LMCache#3004",
    "A17": "LMCache#1130",
    "A18": "LMCache#3884",
    "A19": "LMCache#1034",
    "A21": "atlas#373",
    "A23": "openvino.genai#4332",
    "A24": "FastDeploy#3710",
    "A25": "mllm#688",
    "A26": "sglang#34067",
    "A28": "mini-sglang#52",
    "A31": "sglang#27586",
    "A32": "sglang#38269",
    "A34": "lmdeploy#4700",
    "B1": "vllm#11565",
    "B2": "vllm#11565",
    "B3": "vllm#19031",
    "B4": "ATOM#902",
    "B5": "nano-vllm@f64d821",
    "B6": "vllm#17834",
    "B7": "vllm#40946",
    "B8": "vllm#8824",
    "B9": "vllm#6849",
    "B12": "vllm#43382",
    "B13": "FreeToken#367",
    "B14": "sglang#30892",
    "B16": "inference-sim#1061",
    "B18": "sparkinfer#135",
    "B20": "TensorRT-LLM#16173",
    "B21": "vllm#44409",
    "B22": "vllm#39702",
    "B24": "kvcached#453",
    "B25": "vllm#18957",
    "B26": "nano-vllm#210",
    "B27": "nano-vllm#144",
    "B28": "nano-vllm#30",
    "B29": "vllm#57104",
    "B30": "TensorRT-LLM#12892",
    "C1": "vllm#12621",
    "C3": "openvino.genai#3722",
    "C4": "vllm#3264",
    "C5": "vllm#8240",
    "C6": "vllm#30931",
    "C7": "vllm#44701",
    "C9": "LMCache#690",
    "C11": "vllm#56655",
    "C13": "nano-vllm@f64d821",
    "C14": "vllm#49377",
    "C15": "vllm#9972",
    "C17": "atlas#1193",
    "C18": "vllm#21161",
    "C19": "llm-d-router#2927",
    "D1": "nano-vllm#163",
    "D3": "ATOM#902",
    "D4": "vllm#4764",
    "D6": "kvcached#363",
    "D7": "kvcached#402",
    "D8": "nano-vllm#219",
    "D11": "vllm#14073",
    "D12": "vllm#18668",
    "D13": "vllm#29387",
    "D14": "text-generation-inference#2489",
    "D16": "sglang#35270",
    "D17": "mini-sglang#142",
    "D19": "vllm#39171",
    "D20": "LMCache#5001",
    "D21": "vllm#34367",
    "D22": "ATOM#1725",
    "E1": "nano-vllm@59aa3ff",
    "E3": "vllm#51482",
    "E4": "vllm#42656",
    "E6": "vllm#7193",
    "E7": "FlexKV#195",
    "E8": "inference-sim#354",
    "E10": "sglang#4987",
    "E11": "sglang#10637",
    "E13": "TensorRT-LLM#11685",
    "E15": "sglang#32217",
    "F1": "xLLM#1984",
    "F2": "atlas#692",
    "F4": "vllm#14326",
    "F6": "vllm#9142",
    "G1": "vllm#42273",
    "G3": "imp#967",
    "G5": "vllm#53951",
    "G7": "vllm#18652",
    "H1": "vllm#32255",
    "H3": "vllm#25067",
    "H4": "vllm#18829",
    "H5": "mistral.rs#2044",
    "H7": "sglang#22862",
    "H9": "LMCache#1969",
    "H10": "LMCache#2933",
    "H12": "sglang#27731",
    "J1": "vllm#55092",
    "J3": "vllm#44451",
    "J5": "tokenspeed#166",
    "J6": "vllm#57296",
    "J9": "kvcached#363",
    "J10": "vllm#12284",
    "X1": "imp#1115",
    "X2": "sglang#13339",
    "X3": "nano-vllm#30",
}
"""Row and thread. The numbers have gaps where rows of the first collection were merged."""

FALSE_ALARMS = {
    "imp#1115": "blocks that the prefix cache keeps were counted as leaked: LEAK tells live, "
    "reclaimable and lost blocks apart",
    "sglang#13339": "a leak was reported of an engine that was not idle: LEAK is asked once nobody "
    "holds anything and nothing is on its way back",
    "nano-vllm#30": "a right block boundary was read as off by one, in five threads: the clean "
    "manager of that shape has it, and the specimens of B28 have both wrong ones",
}
"""What was reported as a bug and retracted, and what keeps it from being reported here."""


def row_of(specimen_id: str) -> str:
    """The row that a specimen's id begins with: `J9` of J9b, `D1` of D1-nano."""
    found = re.match(r"[A-Z]+\d*", specimen_id)
    assert found is not None, specimen_id
    return found[0]


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
