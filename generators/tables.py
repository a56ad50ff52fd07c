"""Tables of the manual: depths and their seconds, invariants, severities, facts."""

from __future__ import annotations

from figures import read

from poolproof.certification.depths import BUDGETS, RUNS_PER_CHUNK
from poolproof.certification.levels import LEVELS
from poolproof.contract.profile import Profile
from poolproof.contract.target import POOL_OBSERVERS, Capabilities
from poolproof.contract.violation import Severity
from poolproof.harness.facts import required_chain_facts, required_facts
from poolproof.invariants.catalogue import STATEMENTS
from poolproof.report.glossary import GLOSSARY, KINDS, SEVERITY_MEANINGS
from poolproof.report.wording import severity_words

__all__ = [
    "depth_seconds",
    "depths",
    "facts",
    "glossary",
    "lessons",
    "severities",
    "statements",
]


def depths() -> str:
    """How many runs each depth makes."""
    lines = [
        "| depth | opaque hashes | token chains | queue | manager | breadth-first states |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, budget in BUDGETS.items():
        chunks = (
            budget.pool_chunks,
            budget.chain_chunks,
            budget.queue_chunks,
            budget.manager_chunks,
        )
        runs = " | ".join(f"{RUNS_PER_CHUNK * count:,}" for count in chunks)
        lines.append(f"| `{name}` | {runs} | {budget.shortest_states:,} |")
    return "\n".join(lines) + "\n"


def depth_seconds() -> str:
    """How long whole pools take, by benchmarks/certify_seconds.py."""
    found = read("certify_seconds")
    if found is None:
        return ""
    lines = [
        "| target | depth | workers | seconds | seconds of a core | of these, the first import |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, row in found["rows"].items():
        target, depth = name.split()
        seconds = row["certify"]
        lines.append(
            f"| `{target}` | `{depth}` | {row['workers']} | {seconds['wall_s']:.0f} | "
            f"{seconds['core_s']:.0f} | {row['import']['core_s']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def lessons() -> str:
    """The methods of each level in the order in which they are best written."""
    parts = []
    for level, certified in LEVELS.items():
        lines = [
            f"{level.with_article.capitalize()}:",
            "",
            "| method | what it does | serves |",
            "|---|---|---|",
        ]
        lines += [f"| `{s.call}` | {s.what} | {', '.join(s.serves)} |" for s in certified.lessons]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def statements() -> str:
    """The invariants in one sentence each."""
    lines = ["| name | what must hold |", "|---|---|"]
    lines += [f"| [{name}](#{name.lower()}) | {text} |" for name, text in STATEMENTS.items()]
    return "\n".join(lines) + "\n"


def severities() -> str:
    """The severities, worst first: as --fail-on spells them, in a report, and what they mean."""
    lines = ["| for `--fail-on` | in a report | what it means |", "|---|---|---|"]
    lines += [
        f"| `{severity.value}` | {severity_words(severity)} | {SEVERITY_MEANINGS[severity]} |"
        for severity in Severity
    ]
    return "\n".join(lines) + "\n"


def facts() -> str:
    """What must have happened, for a target that can do and declares as much as possible."""
    profile = Profile(null_block=0, null_in_lists="ignored", keys="partial", events="per-copy")
    verbs = frozenset({"touch", "lookup", "evict", "reset", "cache_chain", "cache_partial"})
    can = Capabilities("pool", verbs, frozenset(POOL_OBSERVERS))
    opaque, chains = required_facts(profile, can), required_chain_facts(profile, can)
    lines = ["With opaque hashes:", "", *(f"- {fact}" for fact in opaque), ""]
    lines += ["With token chains:", "", *(f"- {fact}" for fact in chains)]
    return "\n".join(lines) + "\n"


def glossary() -> str:
    """Every name and word of `poolproof explain`, by kind."""
    sections = []
    for kind, title in KINDS.items():
        lines = [f"## {title}", "", "| name | means | usually |", "|---|---|---|"]
        for entry in GLOSSARY:
            if entry.kind == kind:
                name = f"[{entry.name}]({entry.page})" if entry.page else entry.name
                values = "; ".join(f"`{value}`: {cost}" for value, cost in entry.values)
                rest = entry.causes or values
                lines.append(f"| {name} | {entry.meaning} | {rest} |".replace("  |", " |"))
        if not any(e.causes or e.values for e in GLOSSARY if e.kind == kind):
            lines = [line.removesuffix(" |") for line in lines[4:]]
            lines = [f"## {title}", "", "| name | means |", "|---|---|", *lines]
        elif kind == "row":
            lines[2] = "| row | says | values, and what each costs |"
        sections.append("\n".join(lines))
    return "\n\n".join(sections) + "\n"
