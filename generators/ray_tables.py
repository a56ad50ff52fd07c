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
    # Of a report what does not wait for the disk, and the transaction that waits.
    each = (
        costs["processor ms, coordinator"]
        + costs["merge ms, nothing new"]
        + (
            costs["record ms of wall time, reports together: 100"]
            - costs["record ms of wall time, reports together: 1"]
        )
        / 99
    ) / 1e3
    disk = costs["record ms of wall time, reports together: 1"] / 1e3
    most = int(1 / each)
    told = costs["order ms, news of 1,000 reports"] / 1_000
    rows: list[tuple[str, list[str]]] = [
        ("reports a second", [f"{n:,}" for n in _WORKERS]),
        (
            "the coordinator, a transaction for each report, s a second",
            [f"{n * (each + disk):.2f}" for n in _WORKERS],
        ),
        (
            "the coordinator, one for what came together, s a second",
            [f"{_busy(n, each, disk):.2f}" for n in _WORKERS],
        ),
        (
            "reports that come together",
            [f"{_together(n, each, disk):.0f}" for n in _WORKERS],
        ),
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
    alone, beside = int(1 / (each + disk)), int(1e3 / costs["processor ms, process beside it"])
    limits = {"the coordinator": most, "the process beside it, which speaks to Ray,": beside}
    first = min(limits, key=lambda name: limits[name])
    said = (
        f"A report a second from each: with a transaction for each report a coordinator would be "
        f"busy all the time with {alone:,} workers, {disk / (each + disk):.0%} of it in "
        f"transactions; with one for what came together, with {most:,}. First out of breath is "
        f"{first} at {limits[first]:,}."
    )
    lines += ["", said]
    return "\n".join(lines) + "\n"


def _together(num_reports: int, each_s: float, disk_s: float) -> float:
    """How many reports come a round: in its time, which is each one's and one wait for the disk."""
    left = 1 - num_reports * each_s
    return max(1.0, num_reports * disk_s / left) if left > 0 else float("inf")


def _busy(num_reports: int, each_s: float, disk_s: float) -> float:
    """Seconds of a second with so many reports, of which each round writes what came together."""
    rounds = num_reports / _together(num_reports, each_s, disk_s)
    return num_reports * each_s + rounds * disk_s
