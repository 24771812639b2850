"""Shards have the same bytes whoever writes them, in whatever order, and after every kill."""

import dataclasses
import functools
import json
import pickle
import random
import sys
import tarfile
import time
from concurrent import futures
from pathlib import Path

import numpy as np
import psutil
import pyarrow
import pytest
from pyarrow import parquet

from tests.input_pipeline.commands import test_prepare_datasets
from tests.support import helpers, miniature
from vlc_jax.__main__ import COMMANDS
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import (
    addresses,
    balanced_table,
    beam_engine,
    check_parts,
    job_file,
    near_leaks,
    parts,
    prepare,
    shard_writer,
)
from vlc_jax.input_pipeline.images import parquet_file
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import make_source, shards
from vlc_jax.input_pipeline.stores import any_path, fetch

NEEDS_BEAM = "Apache Beam is not installed: pip install 'vlc_jax[beam]'"


class Noise:
    """30 records of noise; those in `bad` cannot be used."""

    fingerprint = "noise"

    def __init__(self, bad=(3, 17, 18)):
        self.bad = bad

    def __len__(self):
        return 30

    def __getitem__(self, index):
        pixels = np.random.default_rng(index).integers(0, 256, (9, 8, 3), dtype=np.uint8)
        image = b"broken" if index in self.bad else pixels
        return Record(id=f"r{index}", image=image, captions=[f"caption {index}"])


class Other(Noise):
    fingerprint = "other"


def write(out, source=None, share=0.1, engine=None):
    options = {"size": 8, "shard_size": 4, "max_bad_share": share, "engine": engine}
    return shard_writer.write(source or Noise(), out, **options)


def content(folder):
    assert not [*folder.glob("*.partial")]
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def workers(job, report, advance):
    """Four workers with copies of the job, which try every shard twice, in disorder."""
    numbers = [*range(job.count), *range(job.count)]
    random.Random(0).shuffle(numbers)
    pickled = pickle.dumps(job)
    with futures.ThreadPoolExecutor(4) as pool:
        for done in pool.map(lambda number: pickle.loads(pickled).write(number), numbers):
            report(done)


def half(job, report, advance):
    """Writes shards 5, 1 and 4, and dies between the files of shard 2 and its marker."""
    for number in (5, 1, 4, 2):
        job.write(number)
    (job.out / "shard-00002-of-00008.done").unlink()
    (job.out / "shard-00003-of-00008.ids.1.partial").write_bytes(b"of a try that was killed")
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["disk", "store"])
def test_bytes_do_not_depend_on_workers_tries_and_stops(tmp_path, kind, request):
    out = tmp_path if kind == "disk" else any_path.of(request.getfixturevalue("store"))
    write(tmp_path / "one")
    assert write(out / "four", engine=workers)["skipped"] == 3
    listed = helpers.rows(tmp_path / "one/skipped.jsonl")
    assert [row["id"] for row in listed] == ["r3", "r17", "r18"]
    with pytest.raises(KeyboardInterrupt):
        write(out / "stopped", engine=half)
    write(out / "stopped", engine=workers)
    for other in ("four", "stopped"):
        assert content(out / other) == content(tmp_path / "one"), other
    with pytest.raises(ValueError, match="was begun with source_fingerprint 'noise', not 'other'"):
        write(out / "four", Other())


def test_a_finished_shard_that_is_damaged_is_written_again(tmp_path, caplog):
    write(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "out", engine=half)
    path = tmp_path / "out/shard-00004-of-00008.array_record"
    path.write_bytes(path.read_bytes().replace(b"caption 19", b"caption 91"))
    write(tmp_path / "out")
    assert "shard-00004-of-00008.array_record is written again: sha256" in caplog.text
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_skipped_records_are_listed_and_counted(tmp_path):
    out, mended = tmp_path / "out", tmp_path / "mended"
    with pytest.raises(DataError, match=r"3 of 30 .* last is r18: .*out/skipped.jsonl lists them"):
        write(out, share=0.09)
    assert write(out, share=0.1)["skipped"] == write(out, share=0.1)["skipped"] == 3
    assert shards.read_manifest(out)["skipped"] == 3
    with pytest.raises(DataError, match=r"3 of 30 records cannot be used.*in skipped\.jsonl"):
        write(out, share=0.09)
    with pytest.raises(DataError, match=r"skipped\.jsonl lists them"):
        write(mended, share=0.09)
    write(mended, Noise(bad=()), share=0.09)
    assert not (mended / "skipped.jsonl").exists()


@pytest.mark.parametrize("engine", [None, workers, "store"])
def test_bad_records_of_all_workers_count_until_they_are_mended(tmp_path, engine, request):
    out = tmp_path / "out"
    if engine == "store":
        out, engine = any_path.of(request.getfixturevalue("store")), workers
    with pytest.raises(DataError, match=r"3 of 30 records cannot be used.*last is r18"):
        write(out, share=0.09, engine=engine)
    write(tmp_path / "fresh", Noise(bad=(17,)), share=0.09)
    write(out, Noise(bad=(17,)), share=0.09, engine=engine)
    assert content(out) == content(tmp_path / "fresh")


@pytest.mark.parametrize("kind", ["disk", "store"])
def test_an_orphaned_worker_writes_nothing_into_the_next_run(tmp_path, kind, request):
    out = (tmp_path if kind == "disk" else any_path.of(request.getfixturevalue("store"))) / "out"
    orphan = {}

    def killed(job, report, advance):
        assert job.write(0, is_wanted=lambda: False) is None
        orphan["permit"] = beam_engine._permit(job)  # left open, as by a kill
        path, digest = orphan["permit"].__enter__()
        orphan["write"] = functools.partial(beam_engine.write_part, str(path), digest)
        orphan["write"](1)
        raise KeyboardInterrupt

    def another(job, report, advance):
        orphan["write"](2)
        raise KeyboardInterrupt

    for engine in (killed, another):
        with pytest.raises(KeyboardInterrupt):
            write(out, engine=engine)
    assert {path.name[:11] for path in out.glob("shard-*")} == {"shard-00001"}
    orphan["permit"].__exit__(None, None, None)  # while the store of this test is there
    write(out)
    write(tmp_path / "whole")
    assert content(out) == content(tmp_path / "whole")


def squares(records):
    if 9 in records and not Path("mended").exists():
        raise DataError("record 9 is damaged")
    return np.square(records, dtype="<i8").tobytes()


def test_parts_are_equal_whoever_computes_them_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    work = parts.Parts(squares, tmp_path / "out", total=30, size=4, request={"kind": "squares"})
    with pytest.raises(DataError, match="record 9 is damaged"):
        parts.run(work, "", workers)
    with pytest.raises(DataError, match="record 9 is damaged"):
        [*parts.contents(work)]
    Path("mended").touch()
    path, before = work.path(5), work.path(1).stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert work.content(5) is None

    def watching(work, report, advance):
        """Reports what is there, as Beam's engine does, and then computes the rest."""
        assert all(map(report, filter(None, map(work.done, range(work.count)))))
        parts.in_this_process(work, report, advance)

    parts.run(work, "", watching)
    assert np.frombuffer(b"".join(parts.contents(work)), "<i8").tolist() == [
        number**2 for number in range(30)
    ]
    assert work.path(1).stat().st_mtime_ns == before
    message = "out was begun with size 4, not 5; use the same options, name another, or remove it"
    with pytest.raises(ValueError, match=message):
        parts.run(dataclasses.replace(work, size=5), "")


def test_workers_import_no_command_that_runs_as_main():
    classes = (balanced_table.Block, check_parts.Look, near_leaks.OfTraining, near_leaks.Join)
    commands = {module for module, _ in COMMANDS.values()}
    assert not commands & {each.__module__ for each in classes}


def test_the_arrays_of_a_job_stay_in_its_file(tmp_path):
    value = {"large": np.arange(10**6), "none": np.arange(0), "text": np.array(["a", "bcd"])}
    digest = job_file.write(tmp_path / "job", value)
    known = job_file.read(tmp_path / "job", digest)
    assert all((known[name] == value[name]).all() for name in value)
    assert not known["large"].flags.owndata
    content = (tmp_path / "job").read_bytes()
    (tmp_path / "job").write_bytes(content.replace(b"large", b"evil!"))
    with pytest.raises(OSError, match="is not the file that this run wrote"):
        job_file.read(tmp_path / "job", digest)


def test_flags_behind_two_dashes_belong_to_the_runner(tmp_path, capsys, monkeypatch):
    words = ["--source", "digits", "--size", "8", "--out", str(tmp_path / "out")]
    flags = ["--", "--temp_location=gs://bucket/temp"]
    given = addresses.allowed(lambda arguments=None: arguments)
    assert given([*words, *flags])[-2:] == flags  # not copied to this machine
    assert prepare.main([*words, *flags]) == 2
    assert "--temp_location=gs://bucket/temp behind -- is a flag" in capsys.readouterr().err
    here = str(fetch.cache_folder("gs://bucket/out"))  # what an address has become
    assert prepare.main([*words[:-1], here, "--runner", "FlinkRunner", *flags]) == 2
    assert "which workers of FlinkRunner do not see" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "apache_beam.options", None)
    assert prepare.main([*words, "--runner", "DirectRunner", *flags]) == 2
    assert "needs Apache Beam: pip install 'vlc_jax[beam]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def in_a_store(folder, store, kind):
    """Options of `prepare` that read the same 12 records from a folder and from a store."""
    if kind == "tars":
        miniature.write_tars(folder / "set", tars=2, samples=6)
    else:
        (folder / "set").mkdir()
        columns = {"image": [], "caption": []}
        for number in range(12):
            # the footer is read together with 64 kB before it
            picture = miniature.picture(number) + random.Random(number).randbytes(20_000)
            columns["image"].append({"bytes": picture, "path": "a.jpg"})
            columns["caption"].append(f"picture {number}")
        parquet.write_table(pyarrow.table(columns), folder / "set/a.parquet", row_group_size=5)
    for path in (folder / "set").iterdir():
        if path.is_file():
            any_path.of(f"{store}/set/{path.name}").upload(path)
    if kind == "tars":
        return ["img2dataset", "--tars"]
    return ["--source", "records", "--size", "256", "--split", "all", "--option"]


@pytest.mark.parametrize("kind", ["tars", "parquet"])
def test_workers_read_and_write_a_store_in_place(tmp_path, store, kind, monkeypatch):
    words = in_a_store(tmp_path, store, kind)
    prefix = "path=" if kind == "parquet" else ""
    common = ["--shard-size", "5", "--runner", "DirectRunner"]
    monkeypatch.setattr(parts, "engine", lambda *_: workers)
    monkeypatch.setattr(fetch, "local", lambda *_: pytest.fail("copied"))
    for where, out in ((f"{store}/set", f"{store}/out"), (tmp_path / "set", tmp_path / "out")):
        assert prepare.main([*words, f"{prefix}{where}", *common, "--out", str(out)]) == 0
    there, here = content(any_path.of(f"{store}/out")), content(tmp_path / "out")
    # the request names the place
    manifests = [json.loads(each.pop("manifest.json")) for each in (there, here)]
    assert there == here
    for name in ("shards", "count", "images", "complete"):
        assert manifests[0][name] == manifests[1][name]
    assert manifests[0]["request"]["source_fingerprint"] in str(manifests[1])


def test_other_addresses_are_copied_to_this_machine_or_refused(store, monkeypatch, capsys):
    monkeypatch.setattr(parts, "engine", lambda *_: workers)
    any_path.of(f"{store}/a.jsonl").write_bytes(b'{"image": "a.jpg", "caption": "a"}')
    words = ["--source", "records", "--size", "8", "--option", f"path={store}/a.jsonl"]
    words += ["--out", f"{store}/out", "--runner"]
    assert prepare.main([*words, "FlinkRunner"]) == 2
    assert f"path={store}/a.jsonl would be copied to this machine" in capsys.readouterr().err
    assert prepare.main([*words, "DirectRunner"]) == 3  # its image is not there
    assert "a.jpg" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["tars", "parquet"])
def test_a_store_that_is_away_is_no_bad_record(tmp_path, store, kind, monkeypatch):
    in_a_store(tmp_path, store, kind)
    monkeypatch.setattr(any_path, "_BLOCK", 64)  # else one block holds the file
    name, option = {"tars": ("img2dataset", "tars"), "parquet": ("records", "path")}[kind]
    source = make_source(name, "all", **{option: f"{store}/set"})

    def away(self, *words):
        raise stores.StoreError("away")

    parquet_file._group.cache_clear()
    monkeypatch.setattr(any_path.StorePath, "between", away)
    with pytest.raises(stores.StoreError, match="away"):
        source[0]


def test_the_reason_of_a_failed_pipeline_is_no_line_of_its_trace():
    java_error = (
        "Job aborted:\norg.Lost: task 3\nCaused by: No space left\n\tat Disk.java:9\n\t... 24 more"
    )
    assert beam_engine.reason(RuntimeError(java_error)) == "Caused by: No space left"
    assert beam_engine.reason(RuntimeError("  ")) == "RuntimeError('  ')"


def test_beam_writes_the_same_bytes(tmp_path, monkeypatch):
    pytest.importorskip("apache_beam", reason=NEEDS_BEAM)
    monkeypatch.chdir(tmp_path)
    Path("mended").touch()
    flags = ["--direct_num_workers=4", "--direct_running_mode=multi_threading"]
    beam = beam_engine.engine("DirectRunner", flags)
    with pytest.raises(DataError, match="records cannot be used"):
        write(tmp_path / "beam", share=0.01, engine=beam)
    with pytest.raises(ValueError, match="Valid values are"):
        beam_engine.engine("NoRunner", [])
    write(tmp_path / "one")
    write(tmp_path / "beam", engine=beam)
    assert content(tmp_path / "beam") == content(tmp_path / "one")
    for name, runner in (("parts", None), ("beam_parts", beam)):
        work = parts.Parts(squares, tmp_path / name, total=30, size=4, request={})
        parts.run(work, "", runner)
    assert content(tmp_path / "beam_parts") == content(tmp_path / "parts")


def command(folder, *runner):
    words = ["img2dataset", "--tars", "tars", "--shard-size", "10", "--out", folder.name, *runner]
    return test_prepare_datasets.run(words, folder.parent)


def kill_a_worker(process):
    """The last of the processes that Beam started, by a shell each."""
    below = psutil.Process(process.pid).children(recursive=True)
    [*_, last] = [each for each in below if each.cmdline()[1:2] == ["-m"]]
    last.kill()


def wait_for_a_shard(folder, process):
    before, deadline = len([*folder.glob("*.done")]), time.monotonic() + 300
    while len([*folder.glob("*.done")]) == before:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


@pytest.mark.slow
def test_processes_that_are_killed_write_the_same_bytes(tmp_path):
    pytest.importorskip("apache_beam", reason=NEEDS_BEAM)
    (tmp_path / "tars").mkdir()
    picture = miniature.picture(0, size=700)
    with tarfile.open(tmp_path / "tars/00000.tar", "w") as tar:
        for number in range(240):
            is_bad = number in (3, 170)
            miniature.add(tar, f"{number}.jpg", picture[:99] if is_bad else picture)
            miniature.add(tar, f"{number}.txt", f"photograph {number}".encode())
    flags = ["--runner=DirectRunner", "--", "--direct_running_mode=multi_processing"]
    out, whole = tmp_path / "out", tmp_path / "whole"
    with command(out, *flags, "--direct_num_workers=2") as process:
        wait_for_a_shard(out, process)
        kill_a_worker(process)
        # the runner itself would wait for ever
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 30
        assert "a worker process was killed; the same command continues" in stderr
    with command(out, *flags, "--direct_num_workers=1") as process:
        wait_for_a_shard(out, process)
        process.kill()
    assert len([*out.glob("*.done")]) < 24
    for folder in (out, whole):
        with command(folder) as process:
            _, stderr = process.communicate(timeout=300)
            assert process.returncode == 0, stderr
    assert content(out) == content(whole)
