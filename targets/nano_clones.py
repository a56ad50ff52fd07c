"""nano-vLLM and what descends from it: the repositories that `poolproof engines` fetches by git.

None of them is on a package index. Each is fetched at the commit that docs/verdicts.md has a row
for, into the folder that is its name here, as `super-vllm-aff4c10`; the target is that folder,
`nano-vllm:build/engines/super-vllm-aff4c10`. Of nano-vLLM itself there are several generations.

A clone is here if the adapter for the shape can load it (`nano_manager.py`), or if it says why it
does not. Repositories whose block manager is that of another one here, byte for byte, are left out.
"""

from __future__ import annotations

from poolproof.targets.source_engines import PublishedEngine

__all__ = ["NANO_CLONES"]

_NANO_VLLM = "GeeeekExplorer/nano-vllm"


def _clone(
    repository: str,
    commit: str,
    *,
    package: str = "nanovllm",
    has_parameters: bool = True,
    scheduler: bool = False,
    needs: tuple[str, ...] = ("numpy", "xxhash"),
) -> PublishedEngine:
    """A commit of a repository on GitHub; `scheduler` where `nano-engine` drives it as well."""
    owner, _, repository_name = repository.partition("/")
    files = [f"{package}/engine/sequence.py", f"{package}/engine/block_manager.py", "README.md"]
    if has_parameters:
        files.append(f"{package}/sampling_params.py")
    if scheduler:
        files += [f"{package}/config.py", f"{package}/engine/scheduler.py"]
    return PublishedEngine(
        name=repository_name,
        what=f"the BlockManager of {repository_name} ({owner})",
        address=f"https://github.com/{repository}",
        commit=commit,
        files=tuple(files),
        needs=needs,
        checkout="nano-vllm",
    )


_ALL = (
    _clone(_NANO_VLLM, "cde3fc22c2694ba8052f7df0b5e05ef7e10c8603"),
    _clone(_NANO_VLLM, "df99418f7d6ca676550f4372cdc6e1521ce8c33d", scheduler=True),
    _clone(_NANO_VLLM, "8d63a98c03805e54e9a422fd83fff7a4780c17dc"),
    _clone(_NANO_VLLM, "f64d821c2057e2f45d0accccf5b39fd6c1438473"),
    _clone(_NANO_VLLM, "9fa256a56d81101918aa4f763b66854196bab215"),
    _clone("July-h5kf3/alphaVLLM", "04f846c79907c1f938faebd1184c963a02aab26e"),
    _clone("Odysseusq/VLCache", "59b871d6ff895ce4bed2801514031cdd7c42c0b1", needs=()),
    _clone("tang-jiapeng/nano-vllm-v1", "a180672f7c259a2755d40c2dd7f7cea9ab2bebf2"),
    _clone("CodingPlatelets/nano-vllm-v1", "7ec374d54464c8b25b7c69e5b7941253be43745c"),
    _clone(
        "a710128/nanovllm-voxcpm",
        "0ef61b0ba634dbf2fad9e916bc4fb696a3c0f51f",
        package="nanovllm_voxcpm",
        has_parameters=False,
        needs=("xxhash",),
    ),
    _clone("JackeyLove1/super-vllm", "aff4c106eb83c816fecf17677e816d5ab309104d"),
    _clone("B1uee/micro-vLLM", "1543f7df8d0587f9b6b173a515429c57f825c2c2"),
    _clone("Barney666/nano-vllm-plus", "f4b8399c0abe52c7f360c7630704f26f0d037cb5"),
    _clone(
        "86MaxCao/nano-vllm-prefillonly",
        "2164a3187470cd556d8fee33f9f846ffbd8b21ea",
        needs=("numpy", "torch", "xxhash"),
    ),
    _clone(
        "xsmccc/nano-vllm-V1", "e0eda5c1d9478b39f350c7f57e31f1c11fa8ee69", package="prism_infer"
    ),
    _clone("JoeZhang-0x000/nano_vllm_ninetoothed", "deb239a9356ad2868d8fa9b77e49a1342be08410"),
    _clone("IceCreamMilkyTea/PagedKVCOMM", "23ed5696d984a6a74e36935109b643fb0000140d"),
    _clone("Fucov/my_vllm", "926922684aa55b1eee0cc411b20fc96fe618acba"),
    _clone("Gf0205/nano-vllm-kernel-lab", "b7b7bb8944b745dd013a79ffcc832f2e6c5ce8e1"),
    _clone("FILWYZ/nano-vllm-sm120-optimized", "29b87882c2898ffab081103346f6070267213ca7"),
    _clone("Ca1iber/modified-nano-vllm", "92f1b6d3ad1a52a4c71ee9198818f06eaddb4c3b"),
    _clone("HuangRZzzz/nano-vllm-GPU-offload", "c25959d705499b69c13f69b46bf74a7649192085"),
    _clone("HGinkgo/nano-vllm-runtime", "6fd6ee15e97971a6f5bda2c328f7c704b195ef47"),
    _clone("potatoZhx/nano-vllm-moe", "b7cd44839feb265fbd4de3f092913aa753a7376e"),
    _clone("brightmoonflame/nano-vllm-optimized", "eb6d65ce230e3ed70e359904b0e84746396a6c3d"),
    _clone("ProIg-Chaa/nano-vllm-radix", "0346d7c2cc96a5a600033b1a0dd3cc49ca57a6b1"),
)

NANO_CLONES = {clone.folder: clone for clone in _ALL}
"""By the name of the folder that each is fetched into."""
