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

from vlc_jax.errors import nearest
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.record import DataError, path_below
from vlc_jax.input_pipeline.stores import copies, transfer

_FILES = 200_000  # of a repository: the hub advises against half of that
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# What to do about an error of huggingface_hub.
_ADVICE = {
    "GatedRepoError": "its owner gives access on its page; then set HF_TOKEN or run hf auth login",
    "RepositoryNotFoundError": "there is no such repository, or it is private: set HF_TOKEN then",
    "RevisionNotFoundError": "the repository has no such revision",
}


class Address(NamedTuple):
    """kind: model | dataset.   repository: OWNER/NAME.   path: of a file or folder in it, or "".

    published: MODEL/TAG of an address of open_clip, or "".
    """

    kind: str
    repository: str
    revision: str = "main"
    path: str = ""
    published: str = ""

    def __str__(self) -> str:
        revision = self.revision if self.revision.startswith("refs/") else quote(self.revision, "")
        if self.published:
            return f"open_clip://{self.published}@{revision}"
        folder = "datasets/" if self.kind == "dataset" else ""
        return f"hf://{folder}{self.repository}@{revision}" + (f"/{self.path}" if self.path else "")

    @property
    def folder(self) -> str:
        """The folder of the repository among those of all kinds."""
        return f"{self.kind}s/{self.repository}"

    @property
    def options(self) -> dict[str, str]:
        """Arguments of the functions of huggingface_hub."""
        return {"repo_id": self.repository, "repo_type": self.kind, "revision": self.revision}


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
        transfer.ask(_api().whoami)
    return name


def commit(place: Address) -> str:
    """The commit of a revision; offline, the one that was seen last."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    if _COMMIT.fullmatch(place.revision):
        return place.revision
    record = root() / "revisions" / place.folder / f"{quote(place.revision, '')}.txt"
    with errors(str(place)):
        try:
            named = _commit(transfer.ask(lambda: _api().repo_info(**place.options)).sha)
        except OfflineModeIsEnabled:
            for seen in (record, _cache_of(place) / "refs" / place.revision):
                if seen.is_file():
                    return _commit(seen.read_text().strip())
            raise
    _keep(record, named)
    return named


def listing(place: Address) -> list[File]:
    """The files below a path of a commit, or of the folder of a file; kept, as commits stay."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    record = root() / "listings" / place.folder / place.revision
    record = record / f"{quote(place.path, '') or '-'}.json"
    if record.is_file():
        return [File(*entry) for entry in json.loads(record.read_bytes())]
    with errors(str(place)):
        try:
            files = _checked(transfer.ask(lambda: _listed(place)))
        except OfflineModeIsEnabled:
            if files := _cached_files(place):
                return files
            raise
    _keep(record, json.dumps(files))
    return files


def fetch(place: Address, file: File, path: Path) -> str:
    """Links or downloads a file to `path`; returns its sha256."""
    from huggingface_hub import hf_hub_url

    cached = _cache_of(place) / "snapshots" / place.revision / file.path
    if cached.is_file():
        target = cached.resolve()
        # by its hash, not its name; a damaged one is downloaded
        if (sha256 := transfer.digest(target, file.digest)) is not None:
            path.unlink(missing_ok=True)
            path.symlink_to(target)
            return sha256
    url = hf_hub_url(filename=file.path, endpoint=os.environ.get("HF_ENDPOINT"), **place.options)
    return transfer.download(url, path, size=file.size, tag=file.digest, expected=file.digest)


@contextmanager
def errors(address: str) -> Iterator[None]:
    """Context manager: converts errors of huggingface_hub to a ValueError or a StoreError."""
    try:
        with transfer.errors(address):
            yield
    except stores.StoreError as error:
        cause = error.__cause__
        advice = _ADVICE.get(type(cause).__name__)
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if advice is None and status in (401, 403):
            advice = f"the hub refuses the token: {error}"
        if advice is None:
            raise
        raise ValueError(f"{address}: {advice}") from error


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
    api, folder, is_file = _api(), place.path, False
    if place.path:
        entries = api.get_paths_info(paths=[place.path], **place.options)
        if not entries:
            tree = itertools.islice(api.list_repo_tree(**place.options), 1_000)
            names = [entry.path for entry in tree]
            raise ValueError(
                f"{place}: no such file or folder{nearest(place.path, names)}; the "
                f"repository has {', '.join(names[:20])}"
            )
        is_file = hasattr(entries[0], "size")
        folder = place.path.rpartition("/")[0] if is_file else place.path
    if not (is_file and place.kind == "dataset"):
        tree = api.list_repo_tree(
            path_in_repo=folder or None, recursive=not is_file, **place.options
        )
        entries = [*itertools.islice(tree, _FILES + 1)]
        if len(entries) > _FILES:
            raise DataError(f"it has more than {_FILES:,} files: name a folder of it")
    return [
        File(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)
        for entry in entries
        if hasattr(entry, "size")
    ]


def _cache_of(place: Address) -> Path:
    """The folder of a repository in the cache of huggingface_hub."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / place.folder.replace("/", "--")


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
