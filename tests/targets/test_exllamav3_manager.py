"""The adapter of ExLlamaV3, over small jobs and a small page table in its shape.

They are right, but for the fault that a test plants. The engine itself is driven in
test_engine_shapes.py, where it has been fetched.
"""

from __future__ import annotations

from types import SimpleNamespace

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.targets.exllamav3_manager import EXLLAMAV3, Exllamav3Generator, Exllamav3Manager

PAGE_SIZE = 4


class Page:
    """A page: what it holds behind which tokens, and how many of its slots are written."""

    def __init__(self, page_index: int) -> None:
        self.page_index = page_index
        self.ref_count = self.last_use = 0
        self.before: tuple[int, ...] | None = None
        self.tokens: tuple[int, ...] = ()
        self.held: tuple | None = None
        self.phash = object()


class Pages:
    """The page table; a page that was taken and never written is what it was before.

    With `forgets_the_prefix` such a page counts as the first of a prompt, if its content was
    computed again meanwhile.
    """

    def __init__(self, num_pages: int, *, forgets_the_prefix: bool) -> None:
        self.all_pages = [Page(number) for number in range(num_pages)]
        self.forgets_the_prefix = forgets_the_prefix
        self.clock = 0

    def num_unreferenced_pages(self) -> int:
        return sum(page.ref_count == 0 for page in self.all_pages)

    def get_live_page(self, phash: object) -> Page | None:
        page = next(page for page in self.all_pages if page.phash is phash)
        is_whole = page.before is not None and len(page.tokens) == PAGE_SIZE
        return page if is_whole and self.find((*page.before, *page.tokens)) is page else None

    def find(self, prefix: tuple[int, ...]) -> Page | None:
        whole = (prefix[:-PAGE_SIZE], prefix[-PAGE_SIZE:])
        return next((page for page in self.all_pages if (page.before, page.tokens) == whole), None)

    def take(self, page: Page) -> Page:
        self.clock += 1
        page.ref_count, page.last_use = page.ref_count + 1, self.clock
        return page

    def take_new(self) -> Page:
        free = [page for page in self.all_pages if page.ref_count == 0]
        page = self.take(min(free, key=lambda page: page.last_use))
        page.held, page.before, page.tokens = (page.before, page.tokens), None, ()
        return page

    def write(self, page: Page, before: tuple[int, ...], tokens: tuple[int, ...]) -> None:
        page.before, page.tokens, page.held = before, tokens, None

    def give_back(self, page: Page) -> None:
        page.ref_count -= 1
        if page.ref_count == 0 and page.held is not None:
            before, tokens = page.held
            is_double = before is not None and self.find((*before, *tokens)) is not None
            if not is_double:
                page.before, page.tokens = before, tokens
            elif self.forgets_the_prefix:
                page.before, page.tokens = (), tokens
            page.held = None


class Ids(list):
    def truncate(self, length: int) -> None:
        del self[length:]

    def append(self, tokens: list[int]) -> None:
        self.extend(tokens)


class Job:
    """A job of one sequence; see the engine's own for what its methods do."""

    def __init__(self, tokens: list[int], generation: int) -> None:
        self.sequence = SimpleNamespace(
            input_ids=tuple(tokens), sequence_ids=Ids(tokens), kv_position=0, allocated_pages=[]
        )
        self.sequences = [self.sequence]
        self.num_pages = -(-(len(tokens) + generation) // PAGE_SIZE)

    def prepare_for_queue(self, generator, _number: int) -> None:
        self.generator, self.pages = generator, generator.pagetable
        assert self.num_pages <= len(self.pages.all_pages)

    def _found(self) -> list[Page]:
        ids, found = self.sequence.input_ids, []
        for end in range(PAGE_SIZE, len(ids), PAGE_SIZE):
            page = self.pages.find(ids[:end])
            if page is None:
                break
            found.append(page)
        return found

    def current_new_pages_required(self) -> int:
        return self.num_pages - sum(page.ref_count > 0 for page in self._found())

    def allocate_pages(self) -> None:
        found = [self.pages.take(page) for page in self._found()]
        self.sequence.kv_position = len(found) * PAGE_SIZE
        new = [self.pages.take_new() for _ in range(self.num_pages - len(found))]
        self.sequence.allocated_pages = found + new

    def is_prefill_done(self) -> bool:
        return self.sequence.kv_position == len(self.sequence.sequence_ids) - 1

    def prefill(self, _results: list) -> None:
        sequence = self.sequence
        ids, first = sequence.input_ids, sequence.kv_position
        begin, end = ids[:first], ids[first : min(first + PAGE_SIZE, len(ids) - 1)]

        def alike(page: Page) -> int:
            if page.before != begin:
                return 0
            pairs = list(zip(page.tokens, end))
            return next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))

        best = max(self.pages.all_pages, key=alike)
        count = alike(best)
        page = sequence.allocated_pages[first // PAGE_SIZE]
        if count < 2:
            count = 0
        else:
            self.generator.cache.copy_page(None, best.page_index, page.page_index, count)
        if first + count < len(ids) - 1:
            start = SimpleNamespace(item=lambda: first + count)
            self.generator.model.prefill(input_ids=ids, params={"cache_seqlens": start})
        for place in range(first, len(ids) - 1, PAGE_SIZE):
            tokens = ids[place : min(place + PAGE_SIZE, len(ids) - 1)]
            self.pages.write(sequence.allocated_pages[place // PAGE_SIZE], ids[:place], tokens)
        sequence.kv_position = len(ids) - 1

    def get_input_ids_list(self, _draft=None, _idx=0, *, add_to_cache: bool) -> None:
        assert add_to_cache

    def receive_sample(self, _logits, token: list[int], *_rest) -> None:
        sequence = self.sequence
        place = sequence.kv_position
        ids = tuple(sequence.sequence_ids[: place + 1])
        first = place - place % PAGE_SIZE
        self.pages.write(sequence.allocated_pages[place // PAGE_SIZE], ids[:first], ids[first:])
        sequence.sequence_ids.append(token)
        sequence.kv_position += 1

    def deallocate_pages(self) -> None:
        for page in self.sequence.allocated_pages:
            self.pages.give_back(page)
        self.sequence.allocated_pages = []


def findings(*, forgets_the_prefix: bool = False, **rows) -> set[str]:
    generation = EXLLAMAV3.rows["generation_tokens"]

    def make(num_blocks, enable_caching):
        def page_table(_generator, cache):
            assert cache.max_num_tokens == num_blocks * PAGE_SIZE
            return Pages(num_blocks, forgets_the_prefix=forgets_the_prefix)

        return Exllamav3Manager(
            Exllamav3Generator(page_table, num_blocks),
            lambda tokens: Job(tokens, generation),
            list,
            enable_caching=enable_caching,
        )

    profile = ManagerProfile.from_mapping({**EXLLAMAV3.rows, **rows})
    campaign = ManagerCampaign("exllamav3", make, profile, PAGE_SIZE)
    traces = [campaign.run(number).trace for number in range(400)]
    return {trace.violation.invariant for trace in traces if trace is not None}


def test_a_right_manager_in_the_shape_of_exllamav3_holds():
    assert findings() == set()


def test_room_for_the_whole_generation_is_a_bug_under_other_rows():
    assert "ADM" in findings(generation_tokens=0)


def test_a_page_whose_prefix_is_forgotten_is_found_out_by_what_is_copied():
    assert "DATA" in findings(forgets_the_prefix=True)
