"""The Hugging Face hub itself: commits, listings and files of its repositories, and uploads.

HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are those of huggingface_hub.
"""

import itertools
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from vlc_jax.input_pipeline import lookup, stores
from vlc_jax.input_pipeline.record import DataError, path_below
from vlc_jax.input_pipeline.stores import copies, transfer

_FILES = 200_000  # of a repository: the hub advises against half of that
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


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


def push(folder: Path, repository: str) -> str:
    """Uploads the files of a folder to a model repository in one commit; returns its address.

    A new repository is private. Raises ValueError without a token or for a wrong name, StoreError
    if the hub fails.
    """
    with errors(f"hf://{repository}"):
        api = _api()
        api.create_repo(repository, exist_ok=True, private=True)
        uploaded = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=f"Upload {folder.name}"
        )
    return str(Address("model", repository, uploaded.oid))


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
    with errors(f"hf://{name}"):
        transfer.limited(_api().whoami)
    return name


def commit(place: Address) -> str:
    """The commit of a revision; offline, the one that was seen last."""
    if _COMMIT.fullmatch(place.revision):
        return place.revision
    record = root() / "revisions" / f"{place.kind}s" / place.repository
    record = record / f"{quote(place.revision, '')}.txt"
    if _is_offline():
        theirs = _cache_of(place) / "refs" / place.revision
        seen = next((path for path in (record, theirs) if path.is_file()), None)
        if seen is None:
            raise ValueError(
                f"{place} was never fetched to this machine, and HF_HUB_OFFLINE is set: fetch it "
                "once without"
            )
        return _commit(seen.read_text().strip())
    api, options = _api(), {"repo_type": place.kind, "revision": place.revision}
    with errors(str(place)):
        named = _commit(transfer.limited(lambda: api.repo_info(place.repository, **options)).sha)
    _keep(record, named)
    return named


def listing(place: Address) -> list[File]:
    """The files below a path of a commit, or of the folder of a file; kept, as commits stay."""
    record = root() / "listings" / f"{place.kind}s" / place.repository / place.revision
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
    with errors(str(place)):
        files = _checked(transfer.limited(lambda: _listed(place)))
    _keep(record, json.dumps(files))
    return files


def fetch(place: Address, file: File, path: Path) -> str:
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


@contextmanager
def errors(address: str) -> Iterator[None]:
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


def root() -> Path:
    """The folder of copies and listings on this host."""
    return copies.root() / "hub"


def _api() -> Any:
    import huggingface_hub

    # not the constant: a process may have set it after the import
    return huggingface_hub.HfApi(os.environ.get("HF_ENDPOINT"), library_name="vlc_jax")


def _keep(record: Path, text: str) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    # the processes of a run on this host write it at once
    with copies.locked(record):
        stores.replace(record, text.encode())


def _commit(text: Any) -> str:
    """The name of a commit, which is that of a folder here, too. Raises DataError."""
    if not isinstance(text, str) or not _COMMIT.fullmatch(text):
        raise DataError(f"a commit has 40 hexadecimal digits; got {text!r:.80}")
    return text


def _checked(files: list[File]) -> list[File]:
    """The files that are copied. Raises DataError for one that no folder can have."""
    files = [file for file in files if not is_hidden(file.path)]
    folders = {str(parent) for file in files for parent in path_below(Path(), file.path).parents}
    for file in files:
        is_file = isinstance(file.size, int) and 0 <= file.size < 2**50
        if not is_file or not _DIGEST.fullmatch(file.digest) or file.path in folders:
            raise DataError(f"a file has size and hash, and no files below it; got {file!r:.200}")
    return files


def is_hidden(path: str) -> bool:
    """True for files that are not copied; no listing may lead out of the copy, either."""
    return any(part.startswith(".") or not part for part in path.split("/"))


def _listed(place: Address) -> list[File]:
    api, folder = _api(), place.path
    where = {"repo_type": place.kind, "revision": place.revision}
    entries = []
    if place.path:
        entries = api.get_paths_info(place.repository, [place.path], **where)
        if not entries:
            tree = api.list_repo_tree(place.repository, **where)
            names = [entry.path for entry in itertools.islice(tree, 1_000)]
            raise ValueError(
                f"{place}: no such file or folder{lookup.nearest(place.path, names)}; the "
                f"repository has {', '.join(names[:20])}"
            )
    is_file = bool(entries) and hasattr(entries[0], "size")
    if is_file:
        folder = place.path.rpartition("/")[0]
    if not (is_file and place.kind == "dataset"):
        tree = api.list_repo_tree(place.repository, folder or None, recursive=not is_file, **where)
        entries = [*itertools.islice(tree, _FILES + 1)]
        if len(entries) > _FILES:
            raise DataError(f"it has more than {_FILES:,} files: name a folder of it")
        entries = [entry for entry in entries if hasattr(entry, "size")]
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


def _is_offline() -> bool:
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE
