"""SGLang's `merge_state_triton` for a row that has no keys in either part.

Needs torch and triton, no GPU and not Poolproof: without a GPU Triton interprets the kernel. The
one file of the kernel is run; SGLang need not be installed.

Usage: python reproduce.py FOLDER  (the folder that holds sglang/, as unpacked from its wheel)
"""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch

assert len(sys.argv) == 2, __doc__
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

path = Path(sys.argv[1]) / "sglang" / "kernels" / "ops" / "attention" / "merge_state.py"
spec = spec_from_file_location("merge_state", path)
merge_state = module_from_spec(spec)
spec.loader.exec_module(merge_state)

zeros = torch.zeros(1, 1, 16, device=DEVICE)
none = torch.full((1, 1), float("-inf"), device=DEVICE)
output, lse = merge_state.merge_state_triton(zeros, none, zeros, none)
print("two parts without keys: output", output[0, 0, :3].tolist(), "log-sum-exp", lse.item())
print("expected: zeros and minus infinity")

keys, some = torch.ones(1, 1, 16, device=DEVICE), torch.zeros(1, 1, device=DEVICE)
again, _ = merge_state.merge_state_triton(output, lse, keys, some)
print("merged with a third part, whose output is 1:", again[0, 0, :3].tolist())
sys.exit(0 if torch.equal(again, keys) else 1)
