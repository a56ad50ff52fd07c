"""Requests for the caching methods of vLLM's shape: stand-ins, and vLLM's own.

An opaque hash has no tokens behind it, so it travels in a `StandInRequest`, which carries
`block_hashes` and, at rest, every other attribute that published versions of these methods read.
A token chain becomes a real `vllm.v1.request.Request` with real LoRA, salt and multimodal inputs
and vLLM's own hasher, so that its real hashes and extra keys are what is compared; for a class
that was written without vLLM it becomes a stand-in whose hashes are SHA-256 over the content, or
SHAKE256 where its hashes have another length.

Not covered: prompt embeddings.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.contract.content import TokenChain

__all__ = [
    "BYTES_OF_VLLM_HASHES",
    "RequestOf",
    "StandInRequest",
    "prepare_vllm",
    "stand_in_requests",
    "vllm_requests",
]

BYTES_OF_VLLM_HASHES = 32

RequestOf = Callable[[TokenChain], Any]
"""A request for a chain, with `block_hashes` at the grain of the hash block size."""


class StandInRequest(HandedOver):
    """What the caching methods read of a request; everything but hashes and tokens is at rest."""

    def __init__(self, block_hashes: list[bytes], tokens: Sequence[int]) -> None:
        self.request_id = "stand-in"
        self.block_hashes = block_hashes
        self.prompt_token_ids = self.all_token_ids = list(tokens)
        self.output_token_ids: list[int] = []
        self.num_tokens = len(tokens)
        self.lora_request = None
        self.mm_features: list[Any] = []
        self.mm_positions: list[Any] = []
        self.mm_hashes: list[Any] = []
        self.cache_salt = None
        self.prompt_embeds = None
        self.session_id = None


def stand_in_requests(hash_block_size: int, hash_bytes: int | None = None) -> RequestOf:
    """Requests for a class that was written without vLLM; with `hash_bytes` hashes are so long."""

    def digest(content: bytes) -> bytes:
        if hash_bytes is None:
            return hashlib.sha256(content).digest()
        return hashlib.shake_256(content).digest(hash_bytes)

    def request_of(chain: TokenChain) -> StandInRequest:
        contents = (
            chain.prefix(length, 0)
            for length in range(hash_block_size, len(chain.tokens) + 1, hash_block_size)
        )
        hashes = [digest(repr(content).encode()) for content in contents]
        return StandInRequest(hashes, chain.tokens)

    return request_of


def vllm_requests(
    hash_block_size: int,
    *,
    grow: bool = False,
    modules: Callable[[str], Any] = importlib.import_module,
) -> RequestOf:
    """Requests of vLLM's own class, hashed by it with SHA-256; `modules` gives its modules.

    With `grow`, requests of an odd sum of tokens have only the first of them as their prompt and
    get the others as output: their hashes are computed piece by piece, and must be the same.
    """
    utilities = modules("vllm.v1.core.kv_cache_utils")
    request_class = modules("vllm.v1.request").Request
    lora_class = modules("vllm.lora.request").LoRARequest
    inputs = modules("vllm.multimodal.inputs")
    sampling = modules("vllm.sampling_params").SamplingParams(max_tokens=1)
    if "multi_modal_placeholders" in inspect.signature(request_class).parameters and not grow:
        return _early_requests(request_class, lora_class, inputs, sampling)
    sha256 = _sha256_of(modules)
    for needed in ("init_none_hash", "get_request_block_hasher"):
        if not hasattr(utilities, needed):
            raise AttributeError(f"this vLLM has no {needed}(), with which it hashes a request")
    utilities.init_none_hash(sha256)
    # Releases up to 0.18 want more, none of which matters to a cache: the end-of-text token.
    further = {
        parameter.name: None
        for parameter in inspect.signature(request_class).parameters.values()
        if parameter.default is parameter.empty and parameter.name not in _ARGUMENTS
    }
    hasher = utilities.get_request_block_hasher(hash_block_size, sha256)
    # vLLM wants one number for each adapter, and the adapter is its name and path.
    adapters: dict[tuple[str, str], int] = {}

    def request_of(chain: TokenChain) -> Any:
        lora = None
        if chain.lora is not None:
            name, path = chain.lora
            number = adapters.setdefault(chain.lora, len(adapters) + 1)
            lora = lora_class(lora_name=name, lora_int_id=number, lora_path=path)
        features = [
            inputs.MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=image.identifier,
                mm_position=inputs.PlaceholderRange(offset=image.offset, length=image.length),
            )
            for image in chain.images
        ]
        tokens = list(chain.tokens)
        prompt = _prompt_length(chain) if grow and sum(tokens) % 2 else len(tokens)
        request = request_class(
            request_id="poolproof",
            prompt_token_ids=tokens[:prompt],
            sampling_params=sampling,
            pooling_params=None,
            mm_features=features,
            lora_request=lora,
            cache_salt=chain.salt,
            block_hasher=hasher,
            **further,
        )
        if prompt < len(tokens):
            request.append_output_token_ids(tokens[prompt])
            request.append_output_token_ids(tokens[prompt + 1 :])
        return request

    return request_of


def _early_requests(request_class: type, lora_class: type, inputs: Any, sampling: Any) -> RequestOf:
    """Requests of releases up to 0.9, which the manager hashes itself.

    Where they know no salt (0.8), tokens under a salt are other tokens: `poolproof_shift` is what
    is to be added to those that follow, too.
    """
    known = inspect.signature(request_class).parameters
    adapters: dict[tuple[str, str], int] = {}
    salts: dict[str, int] = {}

    def request_of(chain: TokenChain) -> Any:
        arguments: dict[str, Any] = {
            parameter.name: None
            for parameter in known.values()
            if parameter.default is parameter.empty
        }
        arguments |= {
            "request_id": "poolproof",
            "sampling_params": sampling,
            "multi_modal_inputs": [None for _ in chain.images],
            "multi_modal_hashes": [image.identifier for image in chain.images],
            "multi_modal_placeholders": [
                inputs.PlaceholderRange(offset=image.offset, length=image.length)
                for image in chain.images
            ],
        }
        if chain.lora is not None:
            name, path = chain.lora
            number = adapters.setdefault(chain.lora, len(adapters) + 1)
            lora = lora_class(lora_name=name, lora_int_id=number, lora_path=path)
            arguments["lora_request"] = lora
        shift = 0
        if "cache_salt" in known:
            arguments["cache_salt"] = chain.salt
        elif chain.salt is not None:
            shift = salts.setdefault(chain.salt, len(salts) + 1) << _TOKEN_BITS
        arguments["prompt_token_ids"] = [token + shift for token in chain.tokens]
        request = request_class(**arguments)
        request.poolproof_shift = shift
        return request

    return request_of


_TOKEN_BITS = 32
"""More than any token has."""


_ARGUMENTS = ("request_id", "prompt_token_ids", "sampling_params", "pooling_params")


def _sha256_of(modules: Callable[[str], Any]) -> Any:
    """The engine's hash function, which stood in `vllm.utils` until 0.11."""
    try:
        hashing = modules("vllm.utils.hashing")
        if callable(vars(hashing).get("sha256")):
            return hashing.sha256
    except ModuleNotFoundError:
        pass
    return modules("vllm.utils").sha256


def _prompt_length(chain: TokenChain) -> int:
    """How many tokens are there at first: about half, and all images."""
    images_end = max((image.offset + image.length for image in chain.images), default=1)
    return max(images_end, len(chain.tokens) // 2)


def prepare_vllm() -> None:
    """Set what an import of vLLM reads from the environment, where the user has not.

    Log lines below errors stay out of the output: it warns while it is imported, and of each
    refused reset, of which a campaign has thousands. Events carry whole hashes.
    """
    os.environ.setdefault("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "0")
    if "VLLM_LOGGING_LEVEL" not in os.environ:
        os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
        # Some lines come before vLLM has read that variable.
        logging.getLogger("vllm").setLevel(logging.ERROR)
