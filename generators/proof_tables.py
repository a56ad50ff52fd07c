"""The tables of docs/proof.md, from what benchmarks/proof.py wrote."""

from __future__ import annotations

from typing import Any

from figures import read

__all__ = ["contracts", "needed_invariants", "planted_steps", "proof_speed", "proved_models"]


def _result() -> dict[str, Any]:
    empty: dict[str, Any] = {"models": {}, "planted": [], "needs": [], "contracts": []}
    return read("proof") or empty


def proved_models() -> str:
    """How many conditions each model has, and who says that they hold."""
    lines = ["| model | conditions | proved by Z3 | confirmed by cvc5 |", "|---|---:|---:|---:|"]
    for name, model in _result()["models"].items():
        counts = (model["conditions"], model["proved"], model["confirmed"])
        lines.append(f"| `{name}` | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def planted_steps() -> str:
    """Each planted bug and what no longer holds after a step of it."""
    lines = ["| bug | what is wrong | in | no longer holds | thread |", "|---|---|---|---|---|"]
    for bug in _result()["planted"]:
        broken = "; ".join(bug["broken"])
        where = f"{bug['model']}: {bug['action']}"
        row = (bug["name"], bug["sentence"], where, broken, bug["thread"])
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def needed_invariants() -> str:
    """Each invariant and what rests on it."""
    lines = ["| model | invariant | without it |", "|---|---|---|"]
    for need in _result()["needs"]:
        alone = f"{', '.join(need['alone_catches'])} gets through"
        lines.append(f"| `{need['model']}` | {need['invariant']} | {need['step'] or alone} |")
    return "\n".join(lines) + "\n"


def contracts() -> str:
    """Each contract and CrossHair's verdict."""
    lines = ["| contract | conditions | verdict |", "|---|---:|---|"]
    for contract in _result()["contracts"]:
        name, number, verdict = (contract[key] for key in ("name", "num_conditions", "verdict"))
        lines.append(f"| `{name}` | {number} | {verdict} |")
    return "\n".join(lines) + "\n"


def proof_speed() -> str:
    """Wall and processor time of whole runs."""
    result = _result()
    if "prove_s" not in result:
        return "\n"
    solvers = " and ".join(f"{name} {version}" for name, version in result["solvers"].items())
    bridge = result["bridge"]
    prove = f"`poolproof prove` {result['prove_s']:.1f} s"
    symbolic = f"`poolproof symbolic` {result['symbolic_s']:.1f} s"
    return (
        f"Medians of {result['runs']} runs on two cores: {prove} "
        f"({result['prove_processor_s']:.1f} s of processor time, {solvers}, planted bugs, vacuity "
        f"and bridge included), {symbolic} ({result['symbolic_processor_s']:.1f} s). The bridge of "
        f"such a run compares {bridge['num_pool_steps']:,} steps of the pool and "
        f"{bridge['num_queue_steps']:,} of the queue. CrossHair refutes {result['wrong_refuted']} "
        f"of {result['wrong']} wrong versions.\n"
    )
