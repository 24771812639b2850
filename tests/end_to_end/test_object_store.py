"""Runs whose workdir, weights and data lie in an object store equal those on a disk."""

import json

import numpy as np
import pytest

import vlc_jax
from tests.end_to_end.test_devices import assert_same_losses, finish, start_processes
from tests.support import helpers
from tests.support.runs import event_names, flip_a_byte, losses, wait_for
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.commands import prepare
from vlc_jax.input_pipeline.stores import any_path, fetch
from vlc_jax.run.workdir import Workdir

STEPS = helpers.TINY + ":steps=6"


def upload(path, address):
    there = any_path.of(address)
    for file in (file for file in path.rglob("*") if file.is_file()):
        (there / file.relative_to(path).as_posix()).upload(file)


def run(*words, **options):
    done = helpers.run(*words, **options, code=0)
    # a passing fault of the store must not look like damage, after which an older step is taken
    assert "corrupt_checkpoint" not in done.stderr, done.stderr
    return done


@pytest.mark.slow
def test_a_run_killed_in_every_moment_of_a_save_ends_alike(store, trained):
    flags = ("--config.checkpoint.every=1", "--config.checkpoint.keep_last=1")
    words = ["--config", STEPS, "--workdir", store, *flags]
    for moment in ("begun", "written", "marked", "removing"):
        killed = helpers.python("-m", "tests.support.killed_save", moment, *words)
        assert killed.returncode == -9, killed.stderr
    done = run(STEPS, store, *flags)
    assert f"{store}/report.html" in done.stdout
    assert losses(fetch.refresh(store)) == losses(trained)
    there = any_path.of(store).files()
    steps = {name.split("/")[1] for name in there if name.startswith("checkpoints/")}
    assert steps == {"6"}
    assert {"DONE", "config.json", "env.json", "report.html"} <= there.keys()
    events = event_names(fetch.refresh(store))
    assert events[0] == "start"
    assert events.count("resume") >= 2
    assert events[-1] == "done"


def make_shards(tmp_path, address, count, shard_size):
    """Scenes in shards, on this disk and at an address; flags of a run that reads them there."""
    shards = tmp_path / "shards"
    words = ["--source", "scenes", "--split", "train", "--option", f"count={count}", "--size", "40"]
    assert prepare.main([*words, "--shard-size", str(shard_size), "--out", str(shards)]) == 0
    upload(shards, address)
    options = "--config.input.source_options"
    stage = f"{options}.stage={tmp_path / 'stage'}"
    return shards, ("--config.input.source=shards", f"{options}.path={address}", stage)


def damage(there):
    """Flips a byte of the newest step; returns it and the step before."""
    names = there.files("checkpoints/")
    steps = sorted(int(name.split("/")[1]) for name in names if name.endswith("/manifest.json"))
    state = [name for name in names if name.startswith(f"checkpoints/{steps[-1]}/state/")]
    largest = max(state, key=lambda name: names[name].size)
    flip_a_byte(there / largest)
    return steps[-1], steps[-2]


@pytest.mark.slow
def test_a_run_of_two_processes_in_a_store_goes_on_as_four(store, trained, tmp_path):
    """The four find that the newest step is damaged, whichever of them reads that file, and all
    take the one before."""
    # scenes from shards are those that `trained` makes
    _, data = make_shards(tmp_path, f"{store}/shards", count=64, shard_size=16)
    flags, ours = (*data, "--lost_seconds=20"), f"{store}/run"
    jobs = start_processes(2, 1, ours, *flags, "--config.checkpoint.every=1")
    there = any_path.of(ours)
    wait_for((there / "checkpoints/2/manifest.json").exists, *jobs)
    child = json.loads((there / "processes/001.json").read_bytes())["pid"]
    helpers.kill(child)
    errors = [job.communicate(timeout=120)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [30, 137], errors
    assert "process 1 of 2" in errors[0]
    damaged, before = damage(there)
    finish(start_processes(4, 1, ours, *flags))
    for index in range(4):
        log = (fetch.refresh(ours) / "logs" / f"host_{index:03d}.log").read_text()
        assert f'corrupt_checkpoint {{"step": {damaged},' in log
        assert "does not match its sha256" in log
        assert f'restore {{"step": {before}}}' in log
    assert_same_losses(fetch.refresh(ours), trained)


@pytest.mark.slow
def test_weights_data_and_results_come_from_a_store_and_go_there(store, trained, tmp_path):
    shards, data = make_shards(tmp_path, f"{store}/shards", count=300, shard_size=100)
    data = (*data, "--config.input.source_options.shuffle=blocks")  # as in pretraining
    upload(trained, f"{store}/first")
    # as a run in the store is: its checkpoints count by their mark, which lies beside them
    ours = f"{store}/second"
    run(STEPS, ours, f"--config.init_from={store}/first", *data)
    assert list((tmp_path / "stage").glob("*.array_record"))
    assert not list(fetch.cache_folder(f"{store}/shards").glob("*.array_record"))
    config = json.loads((any_path.of(ours) / "config.json").read_bytes())
    assert config["init_from"] == f"{store}/first"

    local = tmp_path / "local"
    run(
        STEPS,
        local,
        f"--config.init_from={trained}",
        *(data[0], f"--config.input.source_options.path={shards}", data[-1]),
    )
    assert losses(fetch.refresh(ours)) == losses(local)
    texts = ["a red square", "a blue circle"]
    np.testing.assert_array_equal(
        vlc_jax.load(ours).embed_texts(texts), vlc_jax.load(local).embed_texts(texts)
    )

    result = any_path.of(f"{ours}/evals/scenes_retrieval/6.json")
    result.unlink()
    helpers.python("-m", "vlc_jax.main", "--mode", "eval", "--workdir", ours, code=0)
    again = json.loads(result.read_bytes())
    path = local / "evals" / "scenes_retrieval" / "6.json"
    assert again["metrics"] == json.loads(path.read_text())["metrics"]
    helpers.python("-m", "vlc_jax.report", ours, local, "--out", tmp_path / "page", code=0)
    watched = tmp_path / "watched"
    helpers.python(
        *("-m", "vlc_jax.main", "--mode", "eval", "--workdir", watched, "--watch", ours), code=0
    )
    assert (watched / "evals" / "scenes_retrieval" / "6.json").exists()


def test_what_is_wrong_with_an_address_is_one_line(store, tmp_path):
    for words, says in (
        ((STEPS, "ftp://bucket/a"), "addresses begin with gs://"),
        ((STEPS, "s3://bucket/a"), "the only store where their lock and"),
        ((STEPS, "gs://no-such-bucket/a"), "cannot use --workdir gs://no-such-bucket/a"),
        ((STEPS, tmp_path / "a", f"--config.init_from={store}/none"), "no such object or folder"),
        ((STEPS, tmp_path / "a", f"--config.eval.cache={store}/c"), "a folder on a local disk"),
    ):
        done = helpers.run(*words, code=2)
        (line,) = done.stderr.strip().splitlines()
        assert says in line
    assert not (tmp_path / "a" / "config.json").exists()


@pytest.mark.slow
def test_a_second_job_in_the_same_folder_of_a_store_is_refused(store):
    first = Workdir(store)
    with pytest.raises(UsageError, match=f"workdir {store} is in use by host"):
        Workdir(store)
    first.close()
