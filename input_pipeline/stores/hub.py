"""Repositories of the Hugging Face hub, by address.

hf://OWNER/NAME or hf://datasets/OWNER/NAME, with @REVISION and /PATH if wanted, and
open_clip://MODEL/TAG, a published name of open_clip (`open_clip_names`). #sha256=HEX at its end is
the hash of the files that are copied (`hashed`); others are refused.

Copies are below $VLC_STORES/hub (default ~/.cache/vlc_jax/hub), a folder per commit; files in the
cache of huggingface_hub are linked. A commit whose files are all here is read without network.
HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are those of huggingface_hub.
"""

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from vlc_jax.input_pipeline import lookup, stores
from vlc_jax.input_pipeline.stores import copies, open_clip_names, transfer

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
    r"hf://(datasets/)?([^/@\s]+/[^/@\s]+)(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/+(.*))?"
)
_NAME = re.compile(r"open_clip://([^/@\s]+)/([^/@\s]+)(?:@([^/]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_THREADS = 8
_HASH = "#sha256="  # the end of an address with the hash of its files


class Address(NamedTuple):
    """kind: model | dataset.   repository: OWNER/NAME.   path: of a file or folder in it, or ""."""

    kind: str
    repository: str
    revision: str = "main"
    path: str = ""

    def __str__(self) -> str:
        folder = "datasets/" if self.kind == "dataset" else ""
        revision = self.revision if self.revision.startswith("refs/") else quote(self.revision, "")
        return f"hf://{folder}{self.repository}@{revision}" + (f"/{self.path}" if self.path else "")


class File(NamedTuple):
    """A file of a repository.   digest: sha256 of a large file, git's sha1 of a small one."""

    path: str
    size: int
    digest: str


class _Copy(NamedTuple):
    """The copy of an address: `path` in `folder`, and its files with their repositories."""

    folder: Path
    path: Path
    files: list[tuple[Address, File]]


def parse(address: str) -> Address:
    """The parts of an address. Raises ValueError for one of another form or an unknown name."""
    address, sha256 = _split(address)
    if sha256 and not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError(f"{address}: a sha256 has 64 hexadecimal digits; got {sha256!r}")
    if match := _NAME.fullmatch(address):
        row = open_clip_names.find(match[1], match[2])
        return Address("model", row.repository, match[3] or "main")
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
    commit = _commit(place)
    bare, sha256 = _split(address)
    end = f"{_HASH}{sha256}" if sha256 else ""
    if match := _NAME.fullmatch(bare):
        return f"open_clip://{match[1]}/{match[2]}@{commit}{end}"
    return f"{place._replace(revision=commit)}{end}"


def hashed(address: str) -> str:
    """The address with its commit and, as #sha256=HEX, the hash of the files that `local` copies.

    Of one file it is the file's; of several, that of the lines which `sha256sum` prints for them,
    by their paths in the repository, in order.
    """
    bare = _split(pinned(address))[0]
    return f"{bare}{_HASH}{_hash(_copied(bare))}"


def is_same(one: str, other: str) -> bool:
    """True for equal addresses; an address without a hash equals one with any."""
    (one, first), (other, second) = _split(one), _split(other)
    return one == other and (first == second or not first or not second)


def _split(address: str) -> tuple[str, str]:
    """The address without its hash, and the hash."""
    bare, _, sha256 = address.partition(_HASH)
    return bare, sha256


def _hash(copy: "_Copy") -> str:
    sha256 = copies.known(copy.folder)
    sums = {file.path: sha256[file.path] for _, file in copy.files}
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
    if _NAME.fullmatch(_split(address)[0]):
        return True  # a row of our own table
    place = parse(address)
    return (_root() / f"{place.kind}s" / place.repository).is_dir()


def hashes(address: str) -> dict[str, str]:
    """{address of a file, with its commit: sha256} of the files that `local` copies."""
    copy = _copied(_split(pinned(address))[0])
    sha256 = copies.known(copy.folder)
    return {str(place._replace(path=file.path)): sha256[file.path] for place, file in copy.files}


def wanted(address: str) -> dict[str, copies.Wanted]:
    """The files at an address of the hub, by path below its folder, without copying them."""
    place = parse(address)
    files = chosen(place, _listing(place))
    folder = place.path
    if any(file.path == place.path for file in files):
        folder = place.path.rpartition("/")[0]
    at = f"{folder}/" if folder else ""
    return {file.path.removeprefix(at): _wanted(place, file) for file in files}


def _wanted(place: Address, file: File) -> copies.Wanted:
    return copies.Wanted(file.size, file.digest, functools.partial(_fetch, place, file))


@functools.cache
def _copied(address: str) -> _Copy:
    """Copies what is missing. address: with a commit, without a hash."""
    place = parse(address)
    if match := _NAME.fullmatch(address):
        row = open_clip_names.find(match[1], match[2])
        folder = _root() / "open_clip" / row.model / row.tag / place.revision
        copy = _Copy(folder, folder, _of_open_clip(place, row))
    else:
        folder = _root() / f"{place.kind}s" / place.repository / place.revision
        listed = [(place, file) for file in chosen(place, _listing(place))]
        copy = _Copy(folder, folder / place.path, listed)
    if not copy.files:
        raise ValueError(f"{address} has no files")
    files = {file.path: _wanted(where, file) for where, file in copy.files}
    with _errors(address):
        copies.make(address, copy.folder, files, _THREADS)
    if match:
        _check_activation(address, row, copy.folder / _CONFIG)
    return copy


def _check_activation(address: str, row: open_clip_names.Row, config: Path) -> None:
    """Raises ValueError if the activation beside the weights is not that of the published name."""
    try:
        is_quick = bool(json.loads(config.read_bytes())["model_cfg"].get("quick_gelu"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{config} is damaged: {error!r}") from error
    if row.activation and is_quick != (row.activation == "quick_gelu"):
        raise ValueError(
            f"{address}: open_clip's list of names has the activation {row.activation}, "
            f"{_CONFIG} of hf://{row.repository} has quick_gelu={is_quick}: one of them is wrong; "
            "the address of the repository itself takes the file's"
        )


def chosen(place: Address, files: Sequence[File], weights: Sequence[str] = WEIGHTS) -> list[File]:
    """The files of a listing that are copied for an address."""
    files = [file for file in files if not _is_hidden(file.path)]
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


def _of_open_clip(place: Address, row: open_clip_names.Row) -> list[tuple[Address, File]]:
    """Weights, config and tokenizer of a published name, with their repositories."""
    files = chosen(place, _listing(place), _OF_OPEN_CLIP)
    names = {file.path for file in files}
    for needed, choices in (("weights", _OF_OPEN_CLIP), ("config", (_CONFIG,))):
        if names.isdisjoint(choices):
            raise ValueError(f"{place} has no {needed} of open_clip ({' or '.join(choices)})")
    # config.json is of transformers' weights, which are not copied
    files = [file for file in files if "/" not in file.path and file.path != "config.json"]
    both = [(place, file) for file in files]
    if row.tokenizer and names.isdisjoint(_TOKENIZER):
        other = Address("model", row.tokenizer, path="tokenizer.json")
        other = other._replace(revision=_commit(other))
        both += [(other, file) for file in _listing(other) if file.path == other.path]
    return both


def push(folder: Path, repository: str) -> str:
    """Uploads the files of a folder to a model repository in one commit; returns its address.

    A new repository is private. Raises ValueError without a token or for a wrong name, StoreError
    if the hub fails.
    """
    with _errors(f"hf://{repository}"):
        api = _api()
        api.create_repo(repository, exist_ok=True, private=True)
        commit = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=f"Upload {folder.name}"
        )
    return str(Address("model", repository, commit.oid))


def check_push(repository: str) -> str:
    """The name of a repository, with or without hf:// before it, to which `push` may write.

    Raises ValueError unless it is one, and there is a valid token.
    """
    name = repository.removeprefix("hf://")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise ValueError(f"a repository of the hub is OWNER/NAME; got {repository!r}")
    from huggingface_hub import get_token

    if not get_token():
        raise ValueError(f"hf://{name}: no token; set HF_TOKEN or run hf auth login")
    with _errors(f"hf://{name}"):
        _api().whoami()
    return name


def _is_hidden(path: str) -> bool:
    """True for files that are not copied; no listing may lead out of the copy, either."""
    return any(part.startswith(".") or not part for part in path.split("/"))


def _root() -> Path:
    return copies.root() / "hub"


def _api() -> Any:
    import huggingface_hub

    # not the constant: a process may have set it after the import
    return huggingface_hub.HfApi(os.environ.get("HF_ENDPOINT"), library_name="vlc_jax")


def _commit(place: Address) -> str:
    """The commit of a revision; offline, the one that was seen last."""
    if _COMMIT.fullmatch(place.revision):
        return place.revision
    record = _root() / "revisions" / f"{place.kind}s" / place.repository
    record = record / f"{quote(place.revision, '')}.txt"
    if _is_offline():
        theirs = _cache_of(place) / "refs" / place.revision
        seen = next((path for path in (record, theirs) if path.is_file()), None)
        if seen is None:
            raise ValueError(
                f"{place} was never fetched to this machine, and HF_HUB_OFFLINE is set: fetch it "
                "once without"
            )
        return seen.read_text().strip()
    with _errors(str(place)):
        info = _api().repo_info(place.repository, repo_type=place.kind, revision=place.revision)
    _keep(record, info.sha)
    return info.sha


def _listing(place: Address) -> list[File]:
    """The files below a path of a commit, or of the folder of a file; kept, as commits stay."""
    record = _root() / "listings" / f"{place.kind}s" / place.repository / place.revision
    record = record / f"{quote(place.path, '') or '-'}.json"
    if record.is_file():
        return [File(*entry) for entry in json.loads(record.read_bytes())]
    if _is_offline():
        files = _cached_files(place)
        if not files:
            raise ValueError(
                f"{place} is not on this machine, and HF_HUB_OFFLINE is set: fetch it once without"
            )
        return files
    with _errors(str(place)):
        files = _listed(place)
    _keep(record, json.dumps(files))
    return files


def _keep(record: Path, text: str) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    # the processes of a run on this host write it at once
    with copies.locked(record):
        stores.replace(record, text.encode())


def _listed(place: Address) -> list[File]:
    api, folder = _api(), place.path
    where = {"repo_type": place.kind, "revision": place.revision}
    entries = []
    if place.path:
        entries = api.get_paths_info(place.repository, [place.path], **where)
        if not entries:
            names = [entry.path for entry in api.list_repo_tree(place.repository, **where)]
            raise ValueError(
                f"{place}: no such file or folder{lookup.nearest(place.path, names)}; the "
                f"repository has {', '.join(names[:20])}"
            )
    is_file = bool(entries) and hasattr(entries[0], "size")
    if is_file:
        folder = place.path.rpartition("/")[0]
    if not (is_file and place.kind == "dataset"):
        tree = api.list_repo_tree(place.repository, folder or None, recursive=not is_file, **where)
        entries = [entry for entry in tree if hasattr(entry, "size")]
    return [
        File(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)
        for entry in entries
    ]


def _cache_of(place: Address) -> Path:
    """The folder of a repository in the cache of huggingface_hub."""
    from huggingface_hub import constants

    name = f"{place.kind}s--{place.repository.replace('/', '--')}"
    return Path(constants.HF_HUB_CACHE) / name


def _cached_files(place: Address) -> list[File]:
    """The files of a commit in the cache of huggingface_hub, whose targets are named by hash."""
    snapshot = _cache_of(place) / "snapshots" / place.revision
    at = snapshot / place.path
    if at.is_file():
        at = at.parent
    return [
        File(
            path.relative_to(snapshot).as_posix(),
            path.stat().st_size,
            name if _DIGEST.fullmatch(name := path.resolve().name) else "",
        )
        for path in sorted(at.rglob("*"))
        if path.is_file()
    ]


def _fetch(place: Address, file: File, path: Path) -> str:
    """Links or downloads a file to `path`; returns its sha256."""
    cached = _cache_of(place) / "snapshots" / place.revision / file.path
    if cached.is_file():
        target = cached.resolve()
        # by its hash, not its name; a damaged one is downloaded
        if (sha256 := transfer.digest(target, file.digest)) is not None:
            path.symlink_to(target)
            return sha256
    if _is_offline():
        raise ValueError(
            f"{place._replace(path=file.path)} is not on this machine, and "
            "HF_HUB_OFFLINE is set: fetch it once without"
        )
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    where = {"repo_type": place.kind, "revision": place.revision}
    url = hf_hub_url(place.repository, file.path, endpoint=os.environ.get("HF_ENDPOINT"), **where)
    headers = build_hf_headers(library_name="vlc_jax")
    return transfer.download(
        url, path, size=file.size, tag=file.digest, expected=file.digest, headers=headers
    )


def _is_offline() -> bool:
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


@contextmanager
def _errors(address: str) -> Iterator[None]:
    """Context manager: converts errors of huggingface_hub to a ValueError or a StoreError."""
    from huggingface_hub import errors

    try:
        with transfer.connection_errors(address):
            yield
    except stores.StoreError as error:
        cause = error.__cause__
        if isinstance(cause, errors.GatedRepoError):
            text = "its owner gives access on its page; then set HF_TOKEN or run hf auth login"
        elif isinstance(cause, errors.RepositoryNotFoundError):
            text = "there is no such repository, or it is private: set HF_TOKEN for that"
        elif isinstance(cause, errors.RevisionNotFoundError):
            text = "the repository has no such revision"
        elif isinstance(cause, errors.HfHubHTTPError) and cause.response.status_code in (401, 403):
            text = f"the hub refuses the token: {error}"
        else:
            raise
        raise ValueError(f"{address}: {text}") from error
