"""ExLlamaV3 copies KV into a prompt that was computed behind another prefix.

Usage: python reproduce.py PATH/TO/exllamav3

Runs generator/pagetable.py and generator/job.py of a checkout in the order in which generator.py
calls them; needs PyTorch and NumPy, and neither a model nor a GPU. The extension, the tokenizer and
the model are stand-ins. Exit status 1 if the page that a prompt is copied from was computed behind
other tokens.
"""

import importlib.util
import sys
import types
from pathlib import Path

import torch

PAGE = 256
NUM_PAGES = 7


class Anything:
    """Is false, and does nothing when it is called or asked for an attribute."""

    def __call__(self, *_arguments, **_options):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, _key):
        return ""

    def __bool__(self):
        return False


class Blank(types.ModuleType):
    """A module that has every name."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Anything,), {}) if name[0].isupper() else Anything()


def count_match(first, second, limit):
    """What the C++ extension does: how many tokens two rows begin with alike."""
    pairs = zip(first[0, :limit].tolist(), second[0].tolist())
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(limit, second.shape[-1]))


def load(checkout):
    """`pagetable.py` and `job.py`, without the package's __init__."""
    package = Path(checkout) / "exllamav3"
    for name in (
        "",
        "cache",
        "cache.cache",
        "tokenizer",
        "tokenizer.mm_embedding",
        "util",
        "ext",
        "generator",
        "generator.filter",
        "generator.sampler",
        "generator.loop_detect",
        "device",
        "models",
    ):
        full = f"exllamav3.{name}".rstrip(".")
        sys.modules[full] = Blank(full)
    extension = types.SimpleNamespace(count_match_tensor=count_match)
    sys.modules["exllamav3.ext"].exllamav3_ext = extension
    sys.modules["exllamav3.tokenizer.mm_embedding"].FIRST_MM_EMBEDDING_INDEX = 1 << 62
    for name in ("constants", "util.tensor", "generator.pagetable", "generator.job"):
        full = f"exllamav3.{name}"
        path = package.joinpath(*name.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(full, path)
        sys.modules[full] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["exllamav3.generator.pagetable"], sys.modules["exllamav3.generator.job"]


class Generator:
    """What a job asks of its generator; `copies` are the pages that were copied."""

    def __init__(self, pagetable):
        self.copies = []
        num_tokens = NUM_PAGES * PAGE
        self.cache = types.SimpleNamespace(max_num_tokens=num_tokens, copy_page=self.copy_page)
        self.model = types.SimpleNamespace(caps={}, prefill=lambda **_: None)
        self.max_chunk_size = 8 * PAGE
        self.max_batch_size, self.max_total_tokens = 16, NUM_PAGES * PAGE
        self.num_draft_tokens = self.ngram_match_min = 0
        self.padded_vocab_size = 1
        self.tokenizer = Anything()
        self.tokenizer.get_id_to_piece_list = lambda *_: Anything()
        self.recurrent_cache = None
        self.pagetable = pagetable.PageTable(self, self.cache)

    def copy_page(self, _cache, source, destination, num_tokens):
        self.copies.append((source, destination, num_tokens))

    def __getattr__(self, name):
        return None


def start(generator, job_module, tokens, max_new_tokens):
    """A job that is queued, started and prefilled."""
    job = job_module.Job(torch.tensor([tokens]), max_new_tokens=max_new_tokens)
    job.prepare_for_queue(generator, 1)
    job.allocate_pages()
    while True:
        job.prefill([])
        if job.is_prefill_done():
            break
    job.time_first_token = 0.0
    return job


def decode(job, token=7):
    """The forward pass of the last token, and the token that is sampled from it."""
    job.get_input_ids_list(add_to_cache=True)
    job.receive_sample(None, torch.tensor([[token]]), None, None, None, [])


def pages_of(job):
    return [page.page_index for page in job.sequences[0].allocated_pages]


def main(checkout):
    pagetable, job_module = load(checkout)
    generator = Generator(pagetable)
    first_page, second_page = [5] * PAGE, [9] * PAGE
    prompt = first_page + second_page

    other = start(generator, job_module, [1], PAGE)
    one = start(generator, job_module, prompt, 2 * PAGE + 2)
    decode(other)
    decode(one)
    held = pages_of(one)
    one.deallocate_pages()
    page = held[1]
    print(f"A prompt of two pages is computed in the pages {held[:2]}, and ends; page {page} holds")
    print("the KV of 256 times token 9 behind 256 times token 5.")

    again = start(generator, job_module, prompt, 2 * PAGE + 2)
    print(f"The prompt is sent again and gets {pages_of(again)}: page {page} as room for output.")
    decode(again)
    other.deallocate_pages()
    again.deallocate_pages()
    page = next(p for p in generator.pagetable.all_pages if p.page_index == held[1])
    print(f"It ends early, and page {held[1]} was never written: it has its KV back,")
    print(f"  prev_hash {page.prev_hash}, kv_position {page.kv_position}.")

    generator.copies = []
    start(generator, job_module, [9, 9, 9, 9, 3], PAGE - 10)
    wrong = [copy for copy in generator.copies if copy[0] == held[1]]
    print("The prompt [9, 9, 9, 9, 3] begins with nothing that is cached.")
    print("  expected: no copy")
    print(f"  happens:  copies (from, to, tokens) {generator.copies}")
    if wrong:
        print("  that KV belongs to positions 256 to 259, behind 256 times token 5")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
