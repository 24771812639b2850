"""Writer of array_record shards of resized images, with a manifest; resumable.

The manifest has the request, the sha256 of the annotation file and of every shard, the numbers of
records, captions, different images and skipped records (SKIPPED has the reasons).
"""

import errno
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.commands import parts, shard_job
from vlc_jax.input_pipeline.record import DataError, Source, has_text_only
from vlc_jax.input_pipeline.sources import shards
from vlc_jax.input_pipeline.stores import any_path, progress
from vlc_jax.input_pipeline.stores.any_path import AnyPath

# Pixels: below, JPEG's 8 x 8 blocks show and a PNG is small anyway.
PNG_UP_TO = 64
SKIPPED = "skipped.jsonl"  # records that could not be used, with reasons
_TEMPORARY = (parts.DONE, shard_job.IMAGES, parts.PARTIAL)


def write(
    source: Source,
    out: AnyPath,
    /,
    *,
    title: str = "preparing",
    max_bad_share: float = 0.01,
    threads: int = 1,
    engine: parts.Engine | None = None,
    **request: Any,
) -> dict[str, Any]:
    """Writes the shards of `source` into the folder `out`, of a disk or of an object store, and
    returns the manifest.

    title: of the progress.
    engine: writes the shards, with the same bytes whatever it is; None: this process does.
    request: what determines the content; a folder with another request is refused. Among it
      size: most pixels of an image's shorter side.
      format: "jpeg", "png" or "auto", the default, which is png up to 64 pixels; "features": the
        source's bytes, unchanged.
      shard_size: records of the source per shard; default: 4096.
    Raises ValueError for such a folder, DataError if too many records are unusable; the next run
    reads these again and writes the shards of those that can be used by then.
    """
    if isinstance(out, Path) and out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder for the shards")
    if threads < 1:
        raise ValueError(f"threads must be at least 1; got {threads}")
    if not 0 <= max_bad_share <= 1:
        raise ValueError(f"max_bad_share is a share from 0 to 1; got {max_bad_share}")
    request = _whole_request(source, request)
    out.mkdir(parents=True, exist_ok=True)
    with parts.locked(out), progress.bar(title, len(source)) as advance:
        job = shard_job.Job(source, out, request, threads)
        return _write(job, max_bad_share, engine or parts.in_this_process, advance)


def _write(
    job: shard_job.Job, max_bad_share: float, engine: parts.Engine, advance: parts.Advance
) -> dict[str, Any]:
    manifest = _begin(job.out, job.request)
    total = len(job.source)
    limit = max_bad_share * total
    if manifest["complete"]:
        _remove(job.out, _TEMPORARY)
        last = f"in {SKIPPED}"
        record_validation.check_count(manifest["skipped"], last, limit, total)
        return manifest
    _remove(job.out, (parts.PARTIAL,))
    _save(job.out, manifest)
    seen, bad = np.zeros(job.count, bool), 0

    def report(done: shard_job.Done) -> bool:
        nonlocal bad
        # engines may report a shard twice
        bad += 0 if seen[done.number] else len(done.skipped)
        seen[done.number] = True
        return bad <= limit

    if "refused" in manifest:
        job.try_again()
    engine(job, report, advance)
    if bad > limit:
        _refuse(job, manifest, limit)
    whole = _complete(job, manifest)
    if whole["skipped"] > limit:
        _refuse(job, manifest, limit)
    _save(job.out, whole)
    # makes the index of a long one, so that no run has to
    if isinstance(job.out, Path):
        shards.read_manifest(job.out)
    _remove(job.out, _TEMPORARY)
    return whole


def _refuse(job: shard_job.Job, manifest: dict[str, Any], limit: float) -> None:
    """Lists the skipped records of all finished shards and raises DataError."""
    with _listing(job.out) as skipped:
        for done in filter(None, map(job.done, range(job.count))):
            skipped.add(done.skipped)
    _save(job.out, manifest | {"skipped": skipped.count, "refused": True})
    try:
        record_validation.check_count(skipped.count, skipped.last, limit, len(job.source))
    except DataError as error:
        raise DataError(
            f"{error}. {job.out / SKIPPED} lists them; the same command continues where it "
            "stopped, and reads them again"
        ) from error


def _complete(job: shard_job.Job, manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest of all finished shards. Raises OSError if one is missing."""
    whole = _empty(manifest["request"])
    hashes = [np.empty(0, np.uint64)]
    with _listing(job.out) as skipped:
        for number in range(job.count):
            done = job.done(number)
            if done is None:
                raise OSError(
                    errno.EIO, f"shard {number} of {job.out} is missing; the same command writes it"
                )
            whole["shards"].append(done.shard)
            skipped.add(done.skipped)
            for sum_of in ("count", "captions"):
                whole[sum_of] += done.shard[sum_of]
            hashes.append(np.frombuffer((job.out / done.images["name"]).read_bytes(), "<u8"))
    images = shard_job.num_images(np.concatenate(hashes))
    return whole | {"skipped": skipped.count, "images": images, "complete": True}


def _remove(out: AnyPath, kinds: Sequence[str]) -> None:
    """Removes files of engines and shards: a worker without the file of its job stops."""
    for prefix in (parts.JOB, "shard-"):
        for path in out.glob(f"{prefix}*"):
            if path.suffix in kinds:
                path.unlink(missing_ok=True)


def _whole_request(source: Source, request: Mapping[str, Any]) -> dict[str, Any]:
    """The request with every option that determines the shards' content. Raises ValueError."""
    whole = {"split": "all", **request}
    whole |= {"format": whole.get("format", "auto"), "shard_size": whole.get("shard_size", 4096)}
    if whole["format"] not in ("auto", "jpeg", "png", shards.FEATURES):
        raise ValueError(f"format must be auto, jpeg or png; got {whole['format']!r}")
    for name in ("size", "shard_size"):
        if whole[name] < 1:
            raise ValueError(f"{name} must be at least 1; got {whole[name]}")
    if whole["format"] == "auto":
        whole["format"] = "png" if whole["size"] <= PNG_UP_TO else "jpeg"
    whole |= {"text_only": True} if has_text_only(source) else {}
    return whole | {"source_fingerprint": source.fingerprint, "source_count": len(source)}


def _begin(out: AnyPath, request: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of an earlier run of the same request, or a new one."""
    manifest = parts.begun(out, shards.MANIFEST)
    if manifest is None:
        return _empty(request)
    path = out / shards.MANIFEST
    with parts.parsing(path):
        before = {**manifest["request"], "format_version": manifest["format_version"]}
        manifest["skipped"] = int(manifest["skipped"])
    parts.check_request(out, before, {**request, "format_version": shards.FORMAT_VERSION})
    # of an unfinished folder every shard is compared when it is its turn
    wrong = shards.damaged_shards(out, manifest) if manifest["complete"] else {}
    if wrong:
        name, reason = next(iter(wrong.items()))
        raise DataError(f"shard {out / name}: {reason}; remove {out} and prepare again")
    return manifest


def _empty(request: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a folder without shards."""
    new = {"format_version": shards.FORMAT_VERSION, "complete": False, "request": request}
    return new | {"count": 0, "captions": 0, "shards": [], "skipped": 0}


class _Skipped:
    """Writes skipped records.   count: of them.   last: id and reason of one."""

    def __init__(self, file: TextIO) -> None:
        self._file, self.count, self.last = file, 0, ""

    def add(self, skipped: Iterable[tuple[int, str, str]]) -> None:
        """skipped: (index, id, reason) of records."""
        for _, name, reason in skipped:
            self.count += 1
            self.last = f"{name}: {reason}"
            self._file.write(json.dumps({"id": name, "reason": reason}) + "\n")


@contextmanager
def _listing(out: AnyPath) -> Iterator[_Skipped]:
    """Collects the skipped records of a folder in order, and writes SKIPPED if there are any."""
    with any_path.drafts([out / SKIPPED]) as (draft,):
        with draft.open("w", encoding="utf-8") as file:
            yield (skipped := _Skipped(file))
        if skipped.count:
            any_path.put(draft, out / SKIPPED)
        else:
            (out / SKIPPED).unlink(missing_ok=True)


def _save(out: AnyPath, manifest: dict[str, Any]) -> None:
    any_path.write_json(out / shards.MANIFEST, manifest, indent=1)
