"""Repositories of the Hugging Face hub, by address.

hf://OWNER/NAME or hf://datasets/OWNER/NAME, with @REVISION and /PATH if wanted, and
open_clip://MODEL/TAG, a published name of open_clip (`open_clip_names`). #sha256=HEX at its end is
the hash of the files that are copied (`hashed`); others are refused.

Copies are below $VLC_STORES/hub (default ~/.cache/vlc_jax/hub), a folder per commit; files in the
cache of huggingface_hub are linked. A commit whose files are all here is read without network.
"""

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from vlc_jax.input_pipeline.stores import copies, hub_api, open_clip_names
from vlc_jax.input_pipeline.stores.hub_api import Address, File

# Weights in folders of Hugging Face and open_clip, best first; of several formats one is copied and
# read. safetensors come first: they hold arrays only, whereas the .bin files are pickles.
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_pytorch_model.bin",
    "weights.npz",  # of an exported folder of big_vision's format
)
_OF_OPEN_CLIP = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_CONFIG = "open_clip_config.json"
_ARRAYS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npz", ".index.json")
# read beside them: adapters of language models, connectors of LLaVA
_BESIDE = ("adapter_model.", "non_lora_trainables.", "mm_projector.")
# weights of other frameworks; a .gguf is read by its own path, a repository has many
_FOREIGN = (".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".gguf", ".tflite", ".pb", ".mlmodel")
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "spiece.model", "merges.txt")
_ADDRESS = re.compile(
    r"hf://(datasets/)?((?!\.)[\w.-]+/(?!\.)[\w.-]+)(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/+(.*))?"
)
_NAME = re.compile(r"open_clip://([^/@\s]+)/([^/@\s]+)(?:@([^/]+))?")
_HASH = "#sha256="  # the end of an address with the hash of its files


class _Copy(NamedTuple):
    """The copy of an address.   sha256: of its files, by their addresses."""

    path: Path
    sha256: dict[Address, str]


def parse(address: str) -> Address:
    """The parts of an address. Raises ValueError for one of another form or an unknown name."""
    address, sha256 = _split(address)
    if sha256 and not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError(f"{address}: a sha256 has 64 hexadecimal digits; got {sha256!r}")
    if match := _NAME.fullmatch(address):
        row = open_clip_names.find(match[1], match[2])
        published = f"{match[1]}/{match[2]}"
        return Address("model", row.repository, match[3] or "main", published=published)
    match = _ADDRESS.fullmatch(address)
    if not match or match[2].split("/")[0] in ("spaces", "buckets", "datasets"):
        raise ValueError(
            f"{address}: addresses of the hub are hf://OWNER/NAME and hf://datasets/OWNER/NAME, "
            "with @REVISION and /PATH if wanted, and open_clip://MODEL/TAG"
        )
    path = (match[4] or "").strip("/")
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise ValueError(f"{address}: a path in a repository has no '.' or '..'")
    kind = "dataset" if match[1] else "model"
    return Address(kind, match[2], unquote(match[3] or "main"), path)


@functools.cache
def pinned(address: str) -> str:
    """The address with the commit that its revision names now."""
    place = parse(address)
    end = address.removeprefix(_split(address)[0])
    return f"{place._replace(revision=hub_api.commit(place))}{end}"


def hashed(address: str) -> str:
    """The address with its commit and, as #sha256=HEX, the hash of the files that `local` copies.

    Of one file it is the file's; of several, that of the lines which `sha256sum` prints for them,
    by their paths in the repository, in order.
    """
    bare, _ = _split(pinned(address))
    return f"{bare}{_HASH}{_hash(_copied(bare))}"


def is_same(one: str, other: str) -> bool:
    """True for equal addresses; an address without a hash equals one with any."""
    (one, first), (other, second) = _split(one), _split(other)
    return one == other and (first == second or not first or not second)


def _split(address: str) -> tuple[str, str]:
    """The address without its hash, and the hash."""
    bare, _, sha256 = address.partition(_HASH)
    return bare, sha256


def _hash(copy: _Copy) -> str:
    sums = {place.path: sha256 for place, sha256 in copy.sha256.items()}
    if len(sums) == 1:
        return next(iter(sums.values()))
    lines = (f"{sums[path]}  {path}\n" for path in sorted(sums))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def local(address: str) -> Path:
    """Local path of the file or folder at an address; missing files are copied first.

    Of weights in several formats in a folder, the first of WEIGHTS is copied. A file of a model
    comes with the JSON files beside it, which describe it.
    Raises ValueError for an address without a file, and if its hash is not that of the files;
    StageError if the disk is too full, StoreError if the hub fails or sends bytes with another hash
    than it lists.
    """
    bare, sha256 = _split(pinned(address))
    copy = _copied(bare)
    if sha256 and sha256 != (digest := _hash(copy)):
        raise ValueError(
            f"{bare}: its files have the sha256 {digest}, not {sha256} as when the run began: the "
            f"repository was rewritten; restore it, or take the address without {_HASH}..."
        )
    return copy.path


def has_copies(address: str) -> bool:
    """True if this machine has a copy of the repository, at any commit, or knows its name."""
    place = parse(address)
    return bool(place.published) or (hub_api.root() / place.folder).is_dir()


def hashes(address: str) -> dict[str, str]:
    """{address of a file, with its commit: sha256} of the files that `local` copies."""
    copy = _copied(_split(pinned(address))[0])
    return {str(place): sha256 for place, sha256 in copy.sha256.items()}


def wanted(address: str) -> dict[str, copies.Wanted]:
    """The files at an address of the hub, by path below its folder, without copying them."""
    place = parse(address)
    files = chosen(place, hub_api.listing(place))
    folder = place.path
    if any(file.path == place.path for file in files):
        folder = place.path.rpartition("/")[0]
    at = f"{folder}/" if folder else ""
    return {file.path.removeprefix(at): _wanted(place, file) for file in files}


def _wanted(place: Address, file: File) -> copies.Wanted:
    return copies.Wanted(file.size, file.digest, functools.partial(hub_api.fetch, place, file))


@functools.cache
def _copied(address: str) -> _Copy:
    """Copies what is missing. address: with a commit, without a hash."""
    place = parse(address)
    if place.published:
        row = open_clip_names.find(*place.published.split("/"))
        folder = hub_api.root() / "open_clip" / row.model / row.tag / place.revision
        listed = _open_clip_files(place, row)
    else:
        folder = hub_api.root() / place.folder / place.revision
        listed = [(place, file) for file in chosen(place, hub_api.listing(place))]
    if not listed:
        raise ValueError(f"{address} has no files")
    with hub_api.errors(address):
        copies.make(address, folder, {file.path: _wanted(where, file) for where, file in listed})
    if place.published:
        _check_activation(address, row, folder / _CONFIG)
    known = copies.known(folder)
    places = [where._replace(path=file.path, published="") for where, file in listed]
    return _Copy(folder / place.path, {each: known[each.path] for each in places})


def _check_activation(address: str, row: open_clip_names.Row, config: Path) -> None:
    """Raises ValueError if the activation beside the weights is not that of the published name."""
    try:
        is_quick = bool(json.loads(config.read_bytes())["model_cfg"].get("quick_gelu"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{config} is damaged: {error!r}") from error
    if row.activation and is_quick != (row.activation == "quick_gelu"):
        raise ValueError(
            f"{address}: open_clip's list of names has the activation {row.activation}, "
            f"{_CONFIG} of hf://{row.repository} has quick_gelu={is_quick}: one of them is wrong; "
            "the address of the repository itself takes the file's"
        )


def chosen(place: Address, files: Sequence[File], weights: Sequence[str] = WEIGHTS) -> list[File]:
    """The files of a listing that are copied for an address."""
    files = [file for file in files if not hub_api.is_hidden(file.path)]
    is_file = any(file.path == place.path for file in files)
    if place.kind == "dataset":
        return [file for file in files if not is_file or file.path == place.path]
    folder = place.path.rpartition("/")[0] if is_file else place.path
    at = f"{folder}/" if folder else ""
    names = {file.path.removeprefix(at): file for file in files}
    wanted = (place.path.removeprefix(at),) if is_file else weights
    best = next((name for name in wanted if name in names), None)
    # an index names its shards, model-00001-of-00003.safetensors
    is_index = best is not None and best.endswith(".index.json")
    shards = f"{best.partition('.')[0]}-" if is_index else None

    def is_needed(name: str) -> bool:
        if name == best or (shards and name.startswith(shards)):
            return True
        if name.startswith(_BESIDE):
            return not is_file
        if is_file:
            return name.endswith(".json") and not name.endswith(".index.json")
        return not name.endswith(_FOREIGN) and (best is None or not name.endswith(_ARRAYS))

    return [file for name, file in names.items() if is_needed(name)]


def _open_clip_files(place: Address, row: open_clip_names.Row) -> list[tuple[Address, File]]:
    """Weights, config and tokenizer of a published name, with their repositories."""
    files = chosen(place, hub_api.listing(place), _OF_OPEN_CLIP)
    names = {file.path for file in files}
    for needed, choices in (("weights", _OF_OPEN_CLIP), ("config", (_CONFIG,))):
        if names.isdisjoint(choices):
            raise ValueError(f"{place} has no {needed} of open_clip ({' or '.join(choices)})")
    # config.json is of transformers' weights, which are not copied
    files = [file for file in files if "/" not in file.path and file.path != "config.json"]
    both = [(place, file) for file in files]
    if row.tokenizer and names.isdisjoint(_TOKENIZER):
        other = Address("model", row.tokenizer, path="tokenizer.json")
        other = other._replace(revision=hub_api.commit(other))
        both += [(other, file) for file in hub_api.listing(other) if file.path == other.path]
    return both
