"""How many differential examples of the kernels the interpreter makes a minute, and false alarms.

One run on one thread: cases drawn by Hypothesis and by the seeded generator, each run through our
Triton kernels in the interpreter and compared with dense attention in float64. Rates are examples
per minute of process time, so that other work on the machine does not count. Also written is the
largest error over its bound for each precision: the factor of the bound is measured here.

Usage: .venv-kernels/bin/python benchmarks/kernel_examples.py [--examples N] [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from typing import Any

from record import add_destination, write_record

HYPOTHESIS_EXAMPLES = 400


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=int, default=10_000)
    add_destination(parser, "kernel_examples")
    arguments = parser.parse_args()
    os.environ["TRITON_INTERPRET"] = "1"
    found = measure(arguments.examples)
    print(json.dumps(found, indent=1))
    if not write_record(arguments.json, found, indent=1):
        return 2
    return int(found["false_alarms"] > 0)


def measure(examples: int) -> dict[str, Any]:
    """The figures."""
    import torch
    import triton

    from poolproof.kernels.checks.catalogue import CHECKS
    from poolproof.kernels.grammar import draw_case
    from poolproof.kernels.interpreter import prepare_interpreter
    from poolproof.kernels.target import paged_target

    torch.set_num_threads(1)
    prepare_interpreter()
    target, check = paged_target("cpu"), CHECKS["dense"]
    draw = random.Random(2026)
    worst: dict[str, float] = {}
    compared = alarms = 0
    began = time.process_time()
    while compared < examples:
        case = draw_case(draw.randrange, target.declaration)
        outcome = check.run(target, case)
        compared += outcome.compared
        if outcome.wrong is not None:
            alarms += 1
            print(f"{outcome.wrong}: {case}", file=sys.stderr)
        if outcome.ratio is not None:
            worst[case.dtype] = max(worst.get(case.dtype, 0.0), round(outcome.ratio, 3))
    seconds = time.process_time() - began
    return {
        "examples": compared,
        "false_alarms": alarms,
        "worst_ratio": worst,
        "seeded_per_minute": round(60 * compared / seconds),
        "hypothesis_per_minute": round(under_hypothesis(target, check)),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def under_hypothesis(target: Any, check: Any) -> float:
    """Examples a minute with Hypothesis behind the same grammar."""
    from hypothesis import HealthCheck, given, settings

    from poolproof.kernels.strategies import cases

    counted = [0]

    @settings(
        max_examples=HYPOTHESIS_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(target.declaration))
    def differential(case: Any) -> None:
        counted[0] += 1
        assert check.run(target, case).wrong is None

    began = time.process_time()
    differential()
    return 60 * counted[0] / (time.process_time() - began)


if __name__ == "__main__":
    sys.exit(main())
