"""The target `exllamav3`: ExLlamaV3's `PageTable`, driven through its own `Job`, unmodified.

A job is queued, which hashes the full pages of its prompt; it starts once as many pages are free as
it needs for its prompt and for all that it may generate, and takes them all. Pages are found by
their hash, wherever in the prompt they stand; of the first page that is not found, the slots are
copied that some page behind the same prefix shares with it. The prompt is computed but for its last
token, which the first decode computes as it samples; what a decode completes is hashed then, and a
page of the same content that another job holds takes its place. A job that ends gives all of its
pages back; one that was taken and never written is again what it was before.

Where it stands in for the generator:
- a job starts and is prefilled in one iteration, alone; its pages count as computed from then on,
  and the next step computes them. Slots of a page that waits for that step are not copied but
  computed: the copy would come before the write.
- a sampled token is not known before the next growth: until then a token 0 stands for it, which is
  in no page. Further tokens of one growth are what a draft would be that is accepted whole.
- generation: up to `generation_tokens` slots. A job that has used them up is queued again as a
  prompt, which here is a preemption; so a growth beyond them waits.
- `PAGE_SIZE`, a constant of the package, is 4; `count_match_tensor`, of its C++ extension, is
  written anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.engine_sources import BlankModule, stub_module
from poolproof.targets.source_engines import Modules, SourceEngine
from poolproof.targets.token_names import TokenNames

__all__ = ["EXLLAMAV3", "Exllamav3Generator", "Exllamav3Manager"]

_PAGE_SIZE = 4
_GENERATION_TOKENS = 6
_NO_TOKEN = 0
"""Stands for a sampled token until it is known."""

Copy = tuple[int, int, int]


class _Given(SimpleNamespace, HandedOver):
    """What a job asks of its generator, and the page table of the cache."""


class _NoText(HandedOver):
    """Every token is an empty piece of text."""

    def get_id_to_piece_list(self, _decodes_special_tokens: bool) -> _NoText:
        return self

    def __getitem__(self, _token: int) -> str:
        return ""


class Exllamav3Generator:
    """The page table, the cache whose copies are noted, and a model that computes nothing.

    `page_table(generator, cache)` makes the engine's own.
    """

    def __init__(self, page_table: Any, num_pages: int) -> None:
        self.begin()
        cache = _Given(max_num_tokens=num_pages * _PAGE_SIZE, copy_page=self._copy_page)
        self.given = _Given(
            cache=cache, draft_cache=None, draft_model=None, dflash_draft=None, mtp_draft=False,
            recurrent_cache=None, num_draft_tokens=0, ngram_match_min=0, padded_vocab_size=1,
            max_batch_size=1 << 30, max_chunk_size=1 << 30, max_total_tokens=cache.max_num_tokens,
            tokenizer=_NoText(), enable_defrag=False,
            model=_Given(caps={}, prefill=self._prefill),
        )  # fmt: skip
        self.pages = page_table(self.given, cache)
        self.given.pagetable = self.pages

    def begin(self) -> None:
        """Forget what was copied and computed."""
        self._copies: list[Copy] = []
        self._first: int | None = None

    def before_the_first(self, end: int) -> tuple[int, list[Copy]]:
        """Where the first forward pass began (`end`: there was none); what was copied before it."""
        return end if self._first is None else self._first, list(self._copies)

    def _copy_page(self, _cache: Any, source: int, destination: int, num_tokens: int) -> None:
        if self._first is None:
            self._copies.append((source, destination, num_tokens))

    def _prefill(self, *, params: Any, **_options: Any) -> None:
        if self._first is None:
            self._first = params["cache_seqlens"].item()


class Exllamav3Manager:
    """`generator.pages`, driven as the generator drives it with jobs that `new_job` makes.

    `tensor` makes a row of token ids.
    """

    def __init__(
        self, generator: Exllamav3Generator, new_job: Any, tensor: Any, *, enable_caching: bool
    ) -> None:
        self._generator = generator
        self._pages = generator.pages
        self._new_job = new_job
        self._tensor = tensor
        self._names = TokenNames(enable_caching=enable_caching)
        self._jobs: dict[int, Any] = {}
        self._settings: dict[int, tuple[object, ...]] = {}
        self._has_sampled: dict[int, bool] = {}
        self._grown: dict[int, list[int]] = {}
        self._unwritten: set[int] = set()
        self._num_jobs = 0

    def admit(
        self, seq_id: int, tokens: list[int], *, extra_keys: Any = None
    ) -> int | str | tuple[int, list[Copy]]:
        setting = self._names.setting(extra_keys)
        job = self._new_job(self._tensor(self._names.named(tokens, setting, extra_keys)))
        self._num_jobs += 1
        try:
            job.prepare_for_queue(self._generator.given, self._num_jobs)
        except AssertionError:  # it requires more pages than there are
            return "never"
        if job.current_new_pages_required() > self._pages.num_unreferenced_pages():
            return "later"
        job.allocate_pages()
        answer = self._prefill(job)
        self._jobs[seq_id], self._settings[seq_id] = job, setting
        self._has_sampled[seq_id], self._grown[seq_id] = False, []
        return answer

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        job, grown = self._jobs[seq_id], self._grown[seq_id]
        ids = job.sequences[0].sequence_ids
        length = len(ids) - self._has_sampled[seq_id] + len(grown) + len(tokens)
        if length > len(job.sequences[0].input_ids) + _GENERATION_TOKENS:
            return "later"
        grown += self._names.named(tokens, self._settings[seq_id])
        return []

    def step(self, batch: list[tuple[int, int]]) -> None:
        """The last token of a prompt, and what was appended: a decode, with the rest as a draft."""
        self._unwritten.clear()
        for seq_id, _ in batch:
            job, grown = self._jobs[seq_id], self._grown[seq_id]
            if self._has_sampled[seq_id]:
                ids = job.sequences[0].sequence_ids
                ids.truncate(len(ids) - 1)
                ids.append(self._tensor([grown.pop(0)]))
            draft = self._tensor(grown) if grown else None
            job.get_input_ids_list(draft, 0, add_to_cache=True)
            for token in [*grown, _NO_TOKEN]:
                job.receive_sample(None, self._tensor([token]), None, None, None, [])
            grown.clear()
            self._has_sampled[seq_id] = True

    def preempt(self, seq_id: int) -> None:
        """As a job that is queued again: its pages go back, and it comes as a prompt."""
        self._jobs[seq_id].deallocate_pages()

    def finish(self, seq_id: int) -> None:
        job = self._jobs.pop(seq_id, None)
        if job is not None:
            job.deallocate_pages()

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        return [page.page_index for page in self._jobs[seq_id].sequences[0].allocated_pages]

    def num_free(self) -> int:
        free: int = self._pages.num_unreferenced_pages()
        return free

    def ref_count(self, block_id: int) -> int:
        count: int = self._pages.all_pages[block_id].ref_count
        return count

    def is_cached(self, block_id: int) -> bool:
        page = self._pages.all_pages[block_id]
        return self._pages.get_live_page(page.phash) is page

    def _prefill(self, job: Any) -> int | tuple[int, list[Copy]]:
        """All of a prompt but its last token; what was found, and what was copied behind it."""
        (sequence,) = job.sequences
        self._generator.begin()
        job.prefill([])
        while not job.is_prefill_done():
            job.prefill([])
        first, copies = self._generator.before_the_first(sequence.kv_position)
        # The table has the pages that are found first, then the one that is copied into.
        table = [page.page_index for page in sequence.allocated_pages]
        copies = copies[:1]
        found = first
        for _, destination, num_tokens in copies:
            found = table.index(destination) * _PAGE_SIZE
            first = found + num_tokens
        if any(source in self._unwritten for source, *_ in copies):
            first, copies = found, []
        self._unwritten.update(table[first // _PAGE_SIZE :])
        return (first, copies) if copies else first


_PACKAGE = "exllamav3"


def _count_match(first: Any, second: Any, limit: int) -> int:
    """How many tokens two rows begin with alike, at most `limit`."""
    pairs = zip(first[0].tolist()[:limit], second[0].tolist())
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(limit, second.shape[-1]))


def _stubs() -> Mapping[str, ModuleType]:
    blank = (
        "cache", "cache.cache", "tokenizer", "util", "generator.filter", "generator.loop_detect",
        "generator.sampler",
    )  # fmt: skip
    extension = HandedFields(count_match_tensor=_count_match)
    return {
        **{f"{_PACKAGE}.{name}": BlankModule(f"{_PACKAGE}.{name}") for name in blank},
        f"{_PACKAGE}.constants": stub_module(f"{_PACKAGE}.constants", PAGE_SIZE=_PAGE_SIZE),
        f"{_PACKAGE}.ext": stub_module(f"{_PACKAGE}.ext", exllamav3_ext=extension),
        f"{_PACKAGE}.tokenizer.mm_embedding": stub_module(
            f"{_PACKAGE}.tokenizer.mm_embedding", FIRST_MM_EMBEDDING_INDEX=1 << 62
        ),
    }


def _manager(
    modules: Modules, num_blocks: int, _block_size: int, enable_caching: bool
) -> Exllamav3Manager:
    torch = vars(modules["generator.job"])["torch"]

    def new_job(ids: Any) -> Any:
        job = modules["generator.job"].Job(ids, max_new_tokens=_GENERATION_TOKENS)
        job.time_first_token = 0.0
        return job

    def tensor(tokens: list[int]) -> Any:
        return torch.tensor([tokens], dtype=torch.long)

    generator = Exllamav3Generator(modules["generator.pagetable"].PageTable, num_blocks)
    return Exllamav3Manager(generator, new_job, tensor, enable_caching=enable_caching)


_USES = (
    Use(
        "generator.job", "Job",
        (
            Call("__init__", ("input_ids",), ("max_new_tokens",)),
            Call("prepare_for_queue", ("generator", "serial_number")),
            Call("current_new_pages_required"), Call("allocate_pages"), Call("deallocate_pages"),
            Call("prefill", ("results",)), Call("is_prefill_done"),
            Call("get_input_ids_list", ("draft_tokens", "idx"), ("add_to_cache",)),
            Call("receive_sample", ("logits", "next_token", "tokens", "probs", "prob", "results")),
        ),
        ("sequences", "time_first_token"),
    ),
    Use(
        "generator.pagetable", "PageTable",
        (
            Call("__init__", ("generator", "cache")), Call("num_unreferenced_pages"),
            Call("get_live_page", ("phash",)),
        ),
        ("all_pages",),
    ),
    Use(
        "generator.pagetable", "Sequence",
        reads=("sequence_ids", "input_ids", "kv_position", "allocated_pages"),
    ),
    Use("generator.pagetable", "CachePage", reads=("page_index", "ref_count", "phash")),
    Use(
        "util.tensor", "SeqTensor",
        (Call("__len__"), Call("truncate", ("new_len",)), Call("append", ("new_data",))),
    ),
)  # fmt: skip


EXLLAMAV3 = SourceEngine(
    name="exllamav3",
    what="the PageTable of ExLlamaV3 under its jobs",
    address="https://github.com/turboderp-org/exllamav3",
    commit="4f8ad0121f483ba66a5336244a4c3b6d7210385e",
    files=(
        "exllamav3/generator/job.py",
        "exllamav3/generator/pagetable.py",
        "exllamav3/util/tensor.py",
        "LICENSE",
    ),
    package=_PACKAGE,
    modules=("util.tensor", "generator.pagetable", "generator.job"),
    stubs=_stubs,
    manager=_manager,
    real_class=lambda modules: modules["generator.pagetable"].PageTable,
    uses=_USES,
    rows={
        "index": "content",
        "publishes": "scheduled",
        "same_step_hit": "allowed",
        "tables": "merged",
        "duplicates": "first",
        "generation_tokens": _GENERATION_TOKENS,
        "admission": "exact-at-admission",
        "hits": "sound",
        "eviction": "unspecified",
        "release_order": "unspecified",
        "misuse": "undefined",
    },
    needs=("torch", "numpy"),
    notes=(
        "adapters, salts and images: there are none, so tokens under them are other tokens",
        "caching off: there is no switch, so each admission has tokens of its own",
        "chunks of a prompt, which end where a page ends: a prompt is computed at once",
        "drafts, banned strings, recurrent states, several sequences of a job: not driven",
        "the second tier in host memory and defragmentation: not driven",
    ),
)
