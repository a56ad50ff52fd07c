"""The tables of docs/ray.md: what was measured of a worker over Ray, and a thousand on paper."""

from __future__ import annotations

from figures import FigureError, read

__all__ = ["ray_at_scale", "ray_costs"]

_WORKERS = (10, 100, 1_000)


def _figures() -> dict[str, float]:
    found = read("ray")
    if found is None:
        raise FigureError(
            "benchmarks/results/ray.json is missing: run benchmarks/ray_cost.py --record"
        )
    figures: dict[str, float] = found["figures"]
    return figures


def ray_costs() -> str:
    """What was measured, as it was."""
    lines = ["| what | measured |", "|---|---:|"]
    for name, value in _figures().items():
        number = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"
        lines.append(f"| {name} | {number} |")
    found = read("ray")
    lines.append(f"| load average while this was measured | {found['load_average']:.1f} |")
    lines.append(f"| processors, shared by coordinator, nodes and others | {found['processors']} |")
    return "\n".join(lines) + "\n"


def ray_at_scale() -> str:
    """What so many workers ask of one coordinator if each reports once a second."""
    costs = _figures()
    coordinator = (
        costs["processor ms, coordinator"]
        + costs["merge ms, nothing new"]
        + costs["record ms, nothing new"]
    )
    disk = costs["record ms of wall time, nothing new"]
    serial = coordinator + max(0.0, disk - costs["record ms, nothing new"])
    told = costs["order ms, news of 1,000 reports"] / 1_000
    rows: list[tuple[str, list[str]]] = [
        ("reports a second", [f"{n:,}" for n in _WORKERS]),
        (
            "the coordinator's processor, s a second",
            [f"{n * coordinator / 1e3:.2f}" for n in _WORKERS],
        ),
        ("with the wait for its disk, s a second", [f"{n * serial / 1e3:.2f}" for n in _WORKERS]),
        (
            "telling each what all the others found, s a second",
            [f"{n * n * told / 1e3:.3f}" for n in _WORKERS],
        ),
        (
            "the process beside it, s a second",
            [f"{n * costs['processor ms, process beside it'] / 1e3:.2f}" for n in _WORKERS],
        ),
        (
            "received, MB a second, once little is new",
            [f"{n * costs['bytes of the last report'] / 1e6:.2f}" for n in _WORKERS],
        ),
        (
            "received, MB a second, all as in the first second",
            [f"{n * costs['bytes of the first report'] / 1e6:.1f}" for n in _WORKERS],
        ),
    ]
    lines = ["| workers | " + " | ".join(f"{n:,}" for n in _WORKERS) + " |"]
    lines.append("|---|" + "---:|" * len(_WORKERS))
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows]
    most = int(1e3 / serial)
    cause = "the wait for the disk" if disk > serial / 2 else "the coordinator's processor"
    return (
        "\n".join(lines)
        + f"\n\nAt a report a second a coordinator is busy all the time with about "
        f"{most:,} workers, and {cause} is most of it.\n"
    )
