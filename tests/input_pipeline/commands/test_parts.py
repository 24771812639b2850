"""A folder of parts that a stranger filled runs nothing, ends, and is named."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from vlc_jax.input_pipeline.commands import check_parts, parts, shard_job
from vlc_jax.input_pipeline.record import DataError

HOSTILE = {  # what lies where a file belongs
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link": lambda path: path.symlink_to(path.parents[1] / "elsewhere"),
    "folder": Path.mkdir,
    "deep": lambda path: path.write_text("[" * 100_000),
    "list": lambda path: path.write_text("[1]\n"),
    "null": lambda path: path.write_text("null\n"),
    "numbers": lambda path: path.write_text('{"bytes": "1", "sha256": 2, "error": []}\n'),
}


def squares(records):
    return np.square(records, dtype="<i8").tobytes()


@pytest.fixture
def work(tmp_path):
    made = parts.Parts(squares, tmp_path / "out", total=8, size=4, request={})
    parts.run(made, "")
    return made


@pytest.mark.parametrize("kind", HOSTILE)
def test_another_file_in_place_of_a_part_is_no_part(work, kind):
    work.path(1).unlink()
    HOSTILE[kind](work.path(1))
    assert work.done(1) is None
    assert work.content(1) is None


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_folder_with_another_request_or_lock_is_refused(work, kind, tmp_path):
    (work.out / parts.REQUEST).unlink()
    HOSTILE[kind](work.out / parts.REQUEST)
    with pytest.raises((DataError, ValueError, OSError), match=str(work.out)):
        parts.run(work, "")
    if kind in ("pipe", "device", "link", "folder"):
        (work.out / f"lock{parts.PARTIAL}").unlink()
        HOSTILE[kind](work.out / f"lock{parts.PARTIAL}")
        with pytest.raises(OSError, match=f"lock{parts.PARTIAL}"):
            parts.run(work, "")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("document", ["[1]", "[" * 100_000, '{"shard": {}, "images": {}}'])
def test_a_mark_of_a_shard_by_a_stranger_is_none(tmp_path, document):
    request = {"size": 8, "format": "png", "shard_size": 1}
    job = shard_job.Job([0], tmp_path, request)
    job._path(0, parts.DONE).write_text(document)
    assert job.done(0) is None


@pytest.mark.parametrize("content", [b"", b"1", b'{"report": []}', b"[" * 100_000])
def test_content_with_a_right_hash_is_parsed_or_its_folder_named(work, content):
    head = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "error": ""}
    work.path(1).write_bytes(json.dumps(head).encode() + b"\n" + content)
    with pytest.raises(DataError, match=f"{work.out} is damaged"), parts.parsing(work.out):
        [*map(check_parts.Found.from_json, list(parts.contents(work))[1:])]
