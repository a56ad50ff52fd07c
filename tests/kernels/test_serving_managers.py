"""The small engine over managers: a right one serves right outputs, a faulty one wrong ones."""

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from poolproof.bugs.catalogue import MANAGER_SPECIMENS
from poolproof.bugs.manager_oddities import MANAGER_ODDITIES
from poolproof.cli.served_managers import served_managers
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Admit,
    AppendTokens,
    Finish,
    Fork,
    Load,
    Preempt,
    Resume,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.kernels.serving.forward import AllocatorBrokeError, WrongOutputError
from poolproof.kernels.serving.manager_engine import ManagerEngine, why_not_served, windows_of
from poolproof.kernels.serving.manager_traffic import ManagerTraffic
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.strategies import manager_machine_for
from poolproof.kernels.target import gather_target, paged_target
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.targets.load import load_target

GATHER = gather_target("cpu")
SERVED = {manager.name: manager for manager in served_managers()}


def engine_of(make, profile, block_size=4, num_blocks=8, target=GATHER) -> ManagerEngine:
    model = TinyModel.random(2, 1, 16, 0, windows_of(profile))
    return ManagerEngine(target, make(num_blocks, True), profile, num_blocks, block_size, model)


def campaign(make, profile, block_size=4, runs=20) -> ManagerEngine:
    """So many runs; the last engine."""
    for seed in range(runs):
        draw = random.Random(seed)
        num_blocks = 5 + draw.randrange(6) + (profile.null_block is not None)
        engine = engine_of(make, profile, block_size, num_blocks)
        ManagerTraffic(engine, draw.randrange).run(40)
        assert engine.forward.compared
    return engine


def layouts():
    for name in ("impl-manager", "impl-vllm-v0", "impl-nano", "reference-manager"):
        for layout in load_target(name).layouts:
            if layout.make is not None and why_not_served(layout.profile) is None:
                yield pytest.param(layout, id=f"{name} {layout.name}")


@pytest.mark.parametrize("layout", list(layouts()))
def test_a_right_manager_serves_dense_attention(layout):
    campaign(layout.make, layout.profile, layout.block_size)


def profile_of(cls) -> ManagerProfile:
    return ManagerProfile.from_mapping(getattr(cls, "profile", {}))


ODDITIES = [cls for cls in MANAGER_ODDITIES if why_not_served(profile_of(cls)) is None]


@pytest.mark.parametrize("cls", ODDITIES, ids=lambda cls: cls.__name__)
def test_an_oddity_is_not_accused(cls):
    profile = profile_of(cls)
    campaign(lambda blocks, caching: cls(blocks, 4, enable_caching=caching), profile, runs=12)


@pytest.mark.parametrize(
    "name",
    [
        "D1-nano",
        "C13",
        "C4",
        "C9",
        "C17",
        "D13",
        "D17-manager",
        "F1-stale",
        "F2",
        "D20",
        "G1",
        "G3",
        "G3-hybrid",
        "D1-hybrid",
        "A8-append",
        "A9",
        "H9",
    ],
)
def test_a_faulty_manager_shows_as_a_wrong_output(name):
    found = MANAGER_SPECIMENS[name]
    sentences = filter(None, (wrong_output(found, seed) for seed in range(150)))
    sentence = next(sentences, "no output was wrong")
    assert "the output is off by" in sentence
    assert "wrote last" in sentence


def wrong_output(found, seed) -> str | None:
    """What one run says of a wrong output; None where there was none."""
    engine = engine_of(found.make, found.profile, found.block_size, 5 + seed % 6)
    try:
        ManagerTraffic(engine, random.Random(seed).randrange).run(40)
    except WrongOutputError as wrong:
        return str(wrong)
    except AllocatorBrokeError:
        return None
    return None


def test_our_kernels_serve_it_too():
    layout = load_target("impl-manager").layout("full+sliding")
    engine = engine_of(layout.make, layout.profile, target=paged_target("cpu"))
    ManagerTraffic(engine, random.Random(3).randrange).run(25)
    assert engine.forward.compared > 10


def test_every_command_is_given():
    verbs = set()
    for name in ("impl-manager full", "impl-vllm-v0 full"):
        served = SERVED[name]
        for seed in range(12):
            engine = engine_of(lambda n, _, made=served: made.make(n, 4), served.profile)
            ManagerTraffic(engine, random.Random(seed).randrange).run(40)
            verbs |= {command.verb for command in engine.commands}
    assert verbs >= {
        "admit", "append_tokens", "step", "schedule", "draft", "accept", "fork", "preempt",
        "resume", "swap_out", "swap_in", "finish", "abort", "lookup_prefix",
    }  # fmt: skip


def test_hypothesis_drives_the_machine():
    run_state_machine_as_test(
        manager_machine_for(GATHER, SERVED["impl-vllm-v0 full"]),
        settings=settings(
            max_examples=15, stateful_step_count=20, deadline=None, database=None,
            derandomize=True, suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("name", SERVED)
def test_a_recorded_run_of_the_harness_is_served(name):
    served = SERVED[name]
    trace = served.record(5, 4)
    assert len(trace.commands) > 10
    model = TinyModel.random(2, 1, 16, 0, windows_of(served.profile))
    batches = []
    engine = served.engine(GATHER, trace.num_blocks, 4, model, watch=batches.append)
    for command in trace.commands:
        engine.apply(command)
    assert engine.forward.compared > 10
    assert batches


def swapping() -> ManagerEngine:
    profile = ManagerProfile(host_blocks=8)
    return engine_of(
        lambda blocks, caching: NativeSequenceManager(
            blocks, 4, enable_caching=caching, profile=profile
        ),
        profile,
    )


def test_a_sequence_is_followed_through_its_life():
    engine = swapping()
    chain = TokenChain((0, 1, 0, 1, 1))
    for command in (
        Admit(0, chain, 0), Step(), Fork(0, 1), AppendTokens(0, (1,)), AppendTokens(1, (0,)),
        Step(), SwapOut(0), SwapIn(0), AppendTokens(1, (1,)), Step(), Truncate(1, 3),
        AppendTokens(1, (1,)), Step(), Preempt(1), Resume(1, 0), Step(), Finish(0),
    ):  # fmt: skip
        assert engine.apply(command), command
    assert engine.forward.compared == 5 + 2 + 1 + 1 + 4


@pytest.mark.parametrize(
    "command",
    [
        Admit(0, TokenChain((1,)), 0),
        Load(5, TokenChain((0, 1)), 1),
        Resume(0, 0),
        AppendTokens(7, (1,)),
        Fork(0, 0),
        Truncate(0, 9),
        SwapIn(0),
        SwapOut(9),
        Preempt(9),
        Finish(9),
    ],
)
def test_what_is_not_legal_now_is_left_out(command):
    engine = swapping()
    engine.apply(Admit(0, TokenChain((0, 1, 0)), 0))
    engine.apply(Step())
    given = list(engine.commands)
    assert not engine.apply(command)
    assert engine.commands == given


class Answers(NativeSequenceManager):
    """Answers with something else where it is told to."""

    answers: dict = {}  # noqa: RUF012 -- replaced by each test

    def admit(self, *arguments, **named):
        return self.answers.get("admit", super().admit(*arguments, **named))

    def append(self, *arguments):
        return self.answers.get("append", super().append(*arguments))

    def block_table(self, *arguments):
        return self.answers.get("table", super().block_table(*arguments))

    def finish(self, *arguments):
        if "finish" in self.answers:
            raise KeyError("finish")
        super().finish(*arguments)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"admit": None}, r"admit\(.*answered None"),
        ({"admit": 9}, "reports 9 of 3 tokens as cached"),
        ({"admit": (0, [(0, 99, 1)])}, r"orders the copies \[\(0, 99\)\]"),
        ({"admit": (0, [(0, 1)])}, r"admit\(.*answered \(0, \[\(0, 1\)\]\)"),
        ({"admit": (9, [])}, "reports 9 of 3 tokens as cached"),
        ({"append": 5}, r"append_tokens\(.*answered 5"),
        ({"append": [(0, 99)]}, r"orders the copies \[\(0, 99\)\]"),
        ({"table": None}, "block_table.* answered None"),
        ({"table": [99]}, r"names no blocks: \[99\]"),
        ({"table": []}, "has 0 blocks where it needs 1"),
        ({"finish": 1}, "finish.* raised KeyError"),
    ],
)
def test_what_is_no_answer_is_the_managers_fault(answers, words):
    profile = ManagerProfile()
    made = type("Made", (Answers,), {"answers": answers})
    engine = engine_of(
        lambda blocks, caching: made(blocks, 4, enable_caching=caching, profile=profile), profile
    )
    with pytest.raises(AllocatorBrokeError, match=words):
        live(engine)


class CopiesAtAdmission(NativeSequenceManager):
    """Shares nothing that is cached: whoever hits one block gets a copy of `num_tokens` of it."""

    num_tokens = 4

    def admit(self, seq_id, tokens, **named):
        cached = super().admit(seq_id, tokens, **named)
        if cached != 4:
            return cached
        source = self.block_table(seq_id)[0]
        return cached, [(source, self.block_table(seq_id)[1], self.num_tokens)]


def test_copies_of_an_admission_are_carried_out():
    """The second block is a copy of the first, and is then written: nothing changes for reads."""
    profile = ManagerProfile()
    engine = engine_of(
        lambda blocks, caching: CopiesAtAdmission(
            blocks, 4, enable_caching=caching, profile=profile
        ),
        profile,
    )
    for seq_id in range(2):
        assert engine.apply(Admit(seq_id, TokenChain((0, 1, 0, 1, 1)), 0))
        assert engine.apply(Step())
    destination = engine.manager.block_table(1)[1]
    assert engine.memory.who_wrote(destination, 0).request == 1
    assert engine.memory.who_wrote(destination, 1).request == 0


def live(engine) -> None:
    """A short life of one sequence."""
    engine.apply(Admit(0, TokenChain((0, 1, 0)), 0))
    engine.apply(Step())
    engine.apply(AppendTokens(0, (1,)))
    engine.apply(Step())
    engine.apply(Finish(0))


def test_groups_that_no_paged_kernel_reads_are_left_out_by_name():
    profile = ManagerProfile.from_mapping({"groups": "full+chunked:8+state"})
    assert why_not_served(profile) == (
        "chunked and state groups are nothing that a paged kernel reads"
    )
