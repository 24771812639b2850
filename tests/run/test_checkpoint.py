"""Saved states survive damage, kills and other meshes; what cannot be used says so."""

import errno
import re
import shutil
import threading
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tests.support import runs
from tests.support.disk_store import on_disk
from vlc_jax.devices import sharding
from vlc_jax.input_pipeline.stores.any_path import StorePath
from vlc_jax.run import checkpoint
from vlc_jax.run.store import step_folders
from vlc_jax.run.store.step_folders import StoreSteps
from vlc_jax.setup import init_from

pytestmark = pytest.mark.devices


def state(value, mesh=None):
    mesh = mesh or sharding.make_mesh(data=4, fsdp=2)
    shard = NamedSharding(mesh, PartitionSpec("fsdp"))
    return {
        "params": {"kernel": jax.device_put(jnp.full((8, 4), value, jnp.float32), shard)},
        "step": jax.device_put(jnp.int32(value), sharding.replicated(mesh)),
    }


def shapes(mesh=None):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0, mesh)
    )


class Folder:
    """Checkpoints in a folder, with the events they report."""

    def __init__(self, path, **options):
        self.events = []
        self.checkpoints = checkpoint.Checkpoints(
            path, on_event=lambda event, **fields: self.events.append((event, fields)), **options
        )

    def save(self, *steps):
        for step in steps:
            self.checkpoints.save(step, state(step))
        self.checkpoints.wait()
        return self

    def restored(self):
        return self.checkpoints.restore(shapes())


def flip_a_byte(folder):
    files = (p for p in (folder / "state").rglob("*") if p.is_file())
    runs.flip_a_byte(max(files, key=lambda p: p.stat().st_size))


def store_steps(path):
    """Steps in a store that is a folder of this disk."""
    steps = StoreSteps(on_disk(path))
    steps.name = str(path)  # for Orbax
    return steps


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture(params=["disk", "store"])
def anywhere(request, tmp_path):
    """Steps that are put in place by a rename, or by a mark as in a store; both on this disk."""
    return Folder(tmp_path if request.param == "disk" else store_steps(tmp_path))


def test_restores_the_newest_step_bit_for_bit_where_shapes_say(anywhere):
    restored = anywhere.save(3, 7).restored()
    assert int(restored["step"]) == 7
    np.testing.assert_array_equal(restored["params"]["kernel"], np.full((8, 4), 7.0))
    assert restored["params"]["kernel"].sharding == shapes()["params"]["kernel"].sharding


def test_restores_onto_another_mesh(anywhere):
    anywhere.save(5)
    mesh = sharding.make_mesh(data=1, fsdp=8)
    restored = anywhere.checkpoints.restore(shapes(mesh))
    np.testing.assert_array_equal(restored["params"]["kernel"], np.full((8, 4), 5.0))
    assert restored["params"]["kernel"].sharding.mesh.shape["fsdp"] == 8


class Grown(NamedTuple):
    """A state with a field that it had not when it was saved, and that is empty."""

    step: Any
    params: Any
    batch_stats: Any = {}  # noqa: RUF012


def test_a_state_may_gain_a_field_that_is_empty(folder):
    folder.save(3)
    grown = Grown(**shapes())
    restored = folder.checkpoints.restore(grown)
    assert isinstance(restored, Grown)
    assert int(restored.step) == 3
    assert restored.batch_stats == {}
    folder.checkpoints.save(4, restored)
    folder.checkpoints.wait()
    again = folder.checkpoints.restore(grown)
    np.testing.assert_array_equal(again.params["kernel"], restored.params["kernel"])
    assert int(folder.restored()["step"]) == 3  # the field is not on disk


def test_an_optional_field_may_be_new_or_gone(folder):
    """As the spike guard, which is switched on or off between two starts."""
    full, plain = (Grown(**state(3), batch_stats=more) for more in ({"a": jnp.ones(2)}, {}))
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), (full, plain)
    )
    folder.checkpoints.save(3, full)
    folder.checkpoints.wait()
    assert folder.checkpoints.restore(like[1]).batch_stats == {}
    np.testing.assert_array_equal(folder.checkpoints.restore(like[0]).batch_stats["a"], [1, 1])
    folder.checkpoints.save(4, plain)
    folder.checkpoints.wait()
    assert folder.checkpoints.restore(like[0]).batch_stats == {}
    assert int(folder.checkpoints.restore(like[0]).step) == 3


def test_nothing_saved_restores_none(anywhere):
    assert anywhere.restored() is None


HARMS = ("flip", "truncate", "delete", "no manifest", "no state", "odd manifest", "empty folder")


@pytest.mark.parametrize(
    ("anywhere", "harm"),
    # in a store, a step without its mark does not count
    [*(("disk", harm) for harm in HARMS), ("store", "flip"), ("store", "delete")],
    indirect=["anywhere"],
)
def test_damage_is_noticed_and_the_step_before_used(anywhere, tmp_path, harm):
    folder = anywhere.save(3, 7)
    newest = tmp_path / "7"
    files = (path for path in (newest / "state").rglob("*") if path.is_file())
    victim = next(path for path in files if path.stat().st_size > 8)
    if harm == "flip":
        flip_a_byte(newest)
    elif harm == "truncate":
        victim.write_bytes(victim.read_bytes()[:-1])
    elif harm == "delete":
        victim.unlink()
    elif harm == "no manifest":
        (newest / step_folders.MANIFEST).unlink()
    elif harm == "no state":
        shutil.rmtree(newest / "state")
        (newest / step_folders.MANIFEST).write_text('{"sha256": {}}')
    elif harm == "odd manifest":
        (newest / step_folders.MANIFEST).write_text('{"sha256": ["state/a"]}')
    else:
        shutil.rmtree(newest)
        newest.mkdir()
    assert int(folder.restored()["step"]) == 3
    assert ("corrupt_checkpoint", 7) in [(event, fields["step"]) for event, fields in folder.events]
    assert (tmp_path / "7.damaged").exists()
    assert int(folder.save(7).restored()["step"]) == 7


def test_a_reader_says_which_step_is_damaged_and_which_is_used(tmp_path, caplog):
    Folder(tmp_path).save(3, 7)
    (tmp_path / "7" / step_folders.MANIFEST).write_text("{}")
    steps, warn = step_folders.LocalSteps(tmp_path), init_from._Warnings(Path("runs/a"))
    checkpoint.Checkpoints(steps, on_event=warn).restore(shapes(), set_aside=False)
    (line,) = caplog.messages
    assert re.fullmatch(r"runs/a: step 7 is damaged \(.+\), step 3 is used", line)


def test_a_step_of_a_store_counts_only_while_it_is_marked(tmp_path, monkeypatch):
    """Whatever call of a save or a deletion is the last one before a kill."""
    folder = Folder(store_steps(tmp_path), keep_last=1).save(3)
    (tmp_path / "3" / "manifest.json").rename(tmp_path / "mark")
    assert folder.checkpoints.steps() == []
    assert folder.restored() is None  # and what is left of it is removed
    assert not (tmp_path / "3").exists()
    folder.save(5)

    def killed(path, data):
        raise OSError("killed")

    monkeypatch.setattr(StorePath, "write_bytes", killed)
    with pytest.raises(checkpoint.SaveError):
        folder.save(7)
    assert int(folder.restored()["step"]) == 5
    monkeypatch.undo()
    removed, unlink = [], StorePath.unlink

    def killed_after_the_first(path):
        removed.append(path)
        unlink(path)
        raise OSError("killed")

    monkeypatch.setattr(StorePath, "unlink", killed_after_the_first)
    folder.checkpoints.folders.begin = lambda step: None
    with pytest.raises(checkpoint.SaveError):
        folder.save(9)
    assert removed == [on_disk(tmp_path / "5" / "manifest.json")]
    assert folder.checkpoints.steps() == [9]


def test_naming_the_steps_of_a_store_reads_no_files(tmp_path, monkeypatch):
    folder = Folder(store_steps(tmp_path)).save(3, 7)
    (tmp_path / "9" / "state").mkdir(parents=True)
    monkeypatch.setattr(StorePath, "files", None)  # which is asked for every file
    assert folder.checkpoints.steps() == [3, 7]


def test_shares_of_a_verification_read_each_file_once(anywhere, tmp_path):
    steps = anywhere.save(7).checkpoints.folders
    files = [path for path in (tmp_path / "7" / "state").rglob("*") if path.is_file()]
    assert len(files) > 3
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content + b"1")
        found = [steps.damage(7, (index, 3)) for index in range(3)]
        name = path.relative_to(tmp_path / "7").as_posix()
        assert sorted(filter(None, found)) == [f"file {name} does not match its sha256"]
        path.write_bytes(content)
    assert [steps.damage(7, (index, 3)) for index in range(3)] == [None] * 3


def test_before_a_step_counts_what_belongs_to_it_is_in_place(tmp_path):
    seen = []
    folder = Folder(tmp_path, before_commit=lambda: seen.append(folder.checkpoints.steps()))
    folder.save(3, 7)
    assert seen == [[], [3]]


def test_all_damaged_is_an_error_and_deletes_nothing(anywhere, tmp_path):
    anywhere.save(3, 7)
    for step in ("3", "7"):
        flip_a_byte(tmp_path / step)
    with pytest.raises(checkpoint.CheckpointError, match=r"7: file .* 3: file .*Nothing was"):
        anywhere.restored()
    assert (tmp_path / "3").exists()
    assert (tmp_path / "7").exists()


def test_a_step_that_was_never_finished_does_not_count(folder, tmp_path):
    folder.save(3)
    shutil.copytree(tmp_path / "3", tmp_path / ".9.writing")
    assert folder.checkpoints.steps() == [3]
    assert int(folder.save(9).restored()["step"]) == 9


def test_left_overs_of_any_step_are_removed_at_the_next_start(folder, tmp_path):
    folder.save(3)
    for name in (".4.writing", ".2.deleting", "7.damaged", "\u00b2"):
        (tmp_path / name).mkdir()
    folder.checkpoints.restore(shapes(), set_aside=False)  # evaluation changes nothing
    assert (tmp_path / ".4.writing").exists()
    assert int(folder.restored()["step"]) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"3", "7.damaged", "\u00b2"}


@pytest.mark.parametrize("make", [Path, store_steps])
def test_keeps_the_last_and_every_nth(tmp_path, make):
    folder = Folder(make(tmp_path), keep_last=2, keep_every=4).save(2, 4, 6, 8, 10)
    assert folder.checkpoints.steps() == [4, 8, 10]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "4", "8"]


def test_another_model_size_names_the_parameters(anywhere):
    anywhere.save(3)
    wanted = shapes()
    wanted["params"]["kernel"] = jax.ShapeDtypeStruct(
        (8, 6), jnp.float32, sharding=wanted["params"]["kernel"].sharding
    )
    with pytest.raises(
        checkpoint.ShapeMismatchError, match=r"params/kernel: saved \(8, 4\), expected \(8, 6\)"
    ):
        anywhere.checkpoints.restore(wanted)


def test_a_save_that_fails_is_raised_by_the_next_wait(folder, monkeypatch):
    def fail(path):
        raise OSError("disk full")

    monkeypatch.setattr(step_folders, "write_manifest", fail)
    folder.checkpoints.save(3, state(3))
    with pytest.raises(checkpoint.SaveError, match="disk full"):
        folder.checkpoints.wait()
    assert folder.checkpoints.steps() == []


def test_a_save_of_processes_that_cannot_begin_is_no_bug(folder, monkeypatch):
    def fail(*args, **options):
        raise ValueError("UNAVAILABLE: 503")

    monkeypatch.setattr(checkpoint.jax, "process_count", lambda: 2)
    monkeypatch.setattr(folder.checkpoints._orbax, "save", fail)
    with pytest.raises(checkpoint.SaveError, match=r"could not save to .*: UNAVAILABLE: 503"):
        folder.checkpoints.save(3, state(3))


FAULTS = {
    "of ours": OSError(errno.EIO, "Input/output error"),
    "of a clock set forward": TimeoutError("Timed out after 86400.0 seconds."),
    "of TensorStore": ValueError("UNKNOWN: Failed to fsync file [os_error_code='5']"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("times", [1, 4])
def test_a_passing_io_error_is_tried_again(folder, tmp_path, monkeypatch, fault, times):
    faults = [fault] * times
    write_manifest = step_folders.write_manifest

    def fail(path):
        if faults:
            raise faults.pop()
        write_manifest(path)

    monkeypatch.setattr(step_folders, "write_manifest", fail)
    monkeypatch.setattr(checkpoint, "RETRY_AFTER_S", (0.0, 0.0, 0.0))
    saved = state(3)
    folder.checkpoints.save(3, saved)
    jax.tree.map(lambda x: x.delete(), saved)  # as the next step does, which is given its memory
    if times == 4:  # it does not pass
        with pytest.raises(checkpoint.SaveError):
            folder.checkpoints.wait()
        assert folder.checkpoints.steps() == []
    else:
        folder.checkpoints.wait()
        np.testing.assert_array_equal(folder.restored()["params"]["kernel"], np.full((8, 4), 3.0))
        assert not (tmp_path / ".3.writing").exists()
    retried = [fields for event, fields in folder.events if event == "save_retry"]
    assert len(retried) == min(times, 3)
    assert retried[0] == {"step": 3, "problem": str(fault)}


def test_orbax_sees_no_time_out_when_the_clock_is_set_forward(tmp_path, monkeypatch):
    """Its time-outs are by the time of day; a clock may start in 1970."""
    options = []
    monkeypatch.setattr(
        "orbax.checkpoint.AsyncCheckpointer",
        lambda handler, async_options: options.append(async_options),
    )
    Folder(tmp_path)
    assert options[0].timeout_secs > 60 * 365 * 86_400


def test_a_save_without_an_end_is_an_error(folder, monkeypatch):
    hanging = threading.Event()
    monkeypatch.setattr(step_folders, "write_manifest", lambda path: hanging.wait())
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.01)
    folder.checkpoints.save(3, state(3))
    with pytest.raises(checkpoint.SaveError, match=r"no end of a save to .* in 0 s"):
        folder.checkpoints.wait()
    hanging.set()
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 60.0)
    folder.checkpoints.wait()


def test_an_error_after_the_step_is_in_place_saves_it_once(folder, monkeypatch):
    monkeypatch.setattr(checkpoint, "RETRY_AFTER_S", (0.0,))
    faults, rmtree = [FAULTS["of ours"]], shutil.rmtree

    def fail(path, **options):
        if path.name.endswith(".deleting") and faults:
            raise faults.pop()
        rmtree(path, **options)

    monkeypatch.setattr(shutil, "rmtree", fail)
    folder.save(1, 2, 3)
    assert folder.checkpoints.steps() == [2, 3]
    assert [fields["step"] for event, fields in folder.events if event == "save"] == [1, 2, 3]
