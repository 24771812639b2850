"""Downloads of single files by HTTP: resumed where they stopped, and compared with a hash."""

import glob
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vlc_jax.input_pipeline import stores

_PIECE = 8 * 2**20  # bytes hashed at a time


def download(
    url: str,
    path: Path,
    *,
    size: int,
    tag: str = "",
    expected: str = "",
    headers: Mapping[str, str] | None = None,
) -> str:
    """Downloads a file to `path` and returns its sha256.

    size: in bytes.   tag: changes whenever the content at the address does; a partial file of
      another tag is not continued.
    expected: the file's sha256, or git's sha1 of it; "" if neither is known.
    headers: of the request; a token among them is not sent to the servers that it redirects to.
    Raises StoreError if the connection fails five times without a byte in between, or the content
    has another hash: a start after the first continues, one after the second downloads again.
    """
    from huggingface_hub.file_download import http_get

    path.parent.mkdir(parents=True, exist_ok=True)
    mark = hashlib.sha256(f"{url} {size} {tag}".encode()).hexdigest()[:12]
    partial = path.with_name(f".{path.name}.{mark}.partial")
    for other in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        if other != partial:
            other.unlink()
    with connection_errors(url), partial.open("ab") as file:
        if file.tell() > size:
            file.truncate(0)
        if file.tell() < size:
            options = {"headers": dict(headers or {}), "expected_size": size}
            http_get(url, file, resume_size=file.tell(), displayed_filename=path.name, **options)
    sha256 = digest(partial, expected)
    if sha256 is None:
        partial.unlink()
        raise stores.StoreError(
            f"{url}: the bytes that came have another hash than {expected}; they are removed: "
            "start the same command again, and if this stays, the server's file is damaged"
        )
    partial.replace(path)
    return sha256


def digest(path: Path, expected: str) -> str | None:
    """The sha256 of a file; None if it differs from `expected`.

    expected: the sha256, git's sha1 of the file, or "".
    """
    sha256, sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            sha256.update(piece)
            sha1.update(piece)
    is_same = expected in ("", sha256.hexdigest(), sha1.hexdigest())
    return sha256.hexdigest() if is_same else None


@contextmanager
def connection_errors(where: str) -> Iterator[None]:
    """Context manager: converts errors of the connection to a StoreError with the address."""
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise ValueError(
            f"{where} is not on this machine, and HF_HUB_OFFLINE is set: fetch it once without"
        ) from error
    except Exception as error:
        is_http = isinstance(error, errors.HfHubHTTPError | json.JSONDecodeError)
        # a wrong address; a full disk
        if not is_http and (isinstance(error, ValueError) or getattr(error, "errno", None)):
            raise
        text = str(error).strip().splitlines()
        raise stores.StoreError(f"{where}: {text[0] if text else type(error).__name__}") from error
