"""Folders of steps: manifests, foreign names, pipes and devices in them."""

import json
import os

import pytest

from tests.run.test_checkpoint import store_steps
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.run.store import step_folders

# name in a manifest -> a part of the description of the damage
OUTSIDE = {
    "state/../../secret": "not a file of the step",
    "state/./a": "not a file of the step",
    "/etc/passwd": "not a file of the step",
    "state/" + "a" * 5_000: "not a file of the step",
    "state/" + "a/" * 5_000 + "a": "cannot be opened",
    "state/a\0b": "not a file of the step",
    "state/\ud800": "not a file of the step",
    "state": "is missing",
}


@pytest.fixture
def step(tmp_path):
    """The folder of a step that a manifest can name files in."""
    (tmp_path / "7/state").mkdir(parents=True)
    (tmp_path / "7/state/a").write_text("a")
    step_folders.write_manifest(tmp_path / "7")
    assert step_folders.LocalSteps(tmp_path).damage(7) is None
    return tmp_path / "7"


@pytest.mark.parametrize("name", OUTSIDE, ids=range(len(OUTSIDE)))
def test_a_manifest_cannot_name_a_file_outside_its_step(step, name):
    (step.parent / "secret").write_text("a")
    manifest = json.loads((step / step_folders.MANIFEST).read_text())
    manifest["sha256"][name] = manifest["sha256"]["state/a"]
    (step / step_folders.MANIFEST).write_text(json.dumps(manifest))
    assert OUTSIDE[name] in step_folders.LocalSteps(step.parent).damage(7)
    # the same words for any folder, which may be one of a store
    if OUTSIDE[name].startswith("not"):
        assert OUTSIDE[name] in store_steps(step.parent).damage(7)


@pytest.mark.parametrize("name", ["manifest.json", "state/a", "state/unlisted", "state/link"])
def test_a_pipe_or_a_device_in_a_step_is_damage(step, name):
    (step / name).unlink(missing_ok=True)
    if name == "state/link":
        (step / name).symlink_to("/dev/zero")
    else:
        os.mkfifo(step / name)
    assert f"{name} is not a regular file" in step_folders.LocalSteps(step.parent).damage(7)
    with pytest.raises(OSError, match="not a regular file"):
        any_path.content(step / name)


def test_a_huge_manifest_is_damage_that_is_not_read(step):
    os.truncate(step / step_folders.MANIFEST, 10**13)  # a hole, which takes no room
    assert "bytes" in step_folders.LocalSteps(step.parent).damage(7)


@pytest.mark.parametrize("name", ["0000012", "00", "9" * 200])
@pytest.mark.parametrize("make", [step_folders.LocalSteps, store_steps])
def test_a_folder_that_no_save_named_is_refused_in_one_line(step, name, make):
    (step.parent / name).mkdir()
    with pytest.raises(UsageError, match=f"{name[:15]}.* not the name of a step") as caught:
        make(step.parent).steps()
    assert len(str(caught.value).splitlines()) == 1


def test_a_step_that_is_a_file_or_a_link_is_refused(step):
    (step.parent / "9").symlink_to(step)
    with pytest.raises(UsageError, match="9 is not the folder of a step"):
        step_folders.LocalSteps(step.parent).steps()
