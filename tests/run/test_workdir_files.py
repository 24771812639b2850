"""JSON of anybody is read or refused; nothing is written through a link."""

import os

import pytest

from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import stores
from vlc_jax.run import workdir_files
from vlc_jax.run.metrics import MetricsWriter
from vlc_jax.run.workdir import Workdir


def nested(levels, middle="1"):
    return "[" * levels + middle + "]" * levels


DEEP = [nested(51), nested(900), nested(100_000), '{"a":' * 100_000]


@pytest.mark.parametrize("text", ["", "{", "[1", b"\xff", "9" * 5_000, *DEEP], ids=range(9))
def test_what_is_no_json_of_a_run_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"\S"):
        stores.parse_json(text)


def test_what_a_run_writes_is_read():
    assert stores.parse_json('{"a": {"b": [1, NaN, "\\ud800"]}}')["a"]["b"][0] == 1
    assert stores.parse_json(nested(49, "{}")) is not None


def test_a_run_writes_into_no_folder_of_something_else(tmp_path):
    photos, begun, mine = (tmp_path / name for name in ("photos", "begun", "mine"))
    for folder in (photos, begun, mine):
        folder.mkdir()
    (photos / "a.jpg").write_text("")
    for name in ("config.json", "model.safetensors", "README.md"):  # weights of Hugging Face
        (photos / name).write_text("")
    with pytest.raises(ValueError, match=r"photos holds a\.jpg, model\.saf.* no run"):
        workdir_files.run_folder(photos)
    with pytest.raises(ValueError, match=r"a\.jpg is a file"):
        workdir_files.run_folder(photos / "a.jpg")
    (begun / "log.txt").write_text("")  # of vlc-jax sweep
    (begun / ".hidden").write_text("")
    (mine / "lock").write_text("")
    (mine / "captions.jsonl").write_text("")
    for path in (tmp_path / "new", begun, mine):
        assert workdir_files.run_folder(path) == path


# File of a run that is written -> how it is written.
WRITERS = {
    ".config.json.writing": lambda run: run.claim({"steps": 1}),
    ".env.json.writing": lambda run: run.write_env(input={}),
    ".DONE.writing": lambda run: run.finish(step=1),
    ".FAILED.writing": lambda run: run.fail(3, "x"),
    "events.jsonl": lambda run: run.event("start", step=0),
    ".metrics.jsonl.writing": lambda run: MetricsWriter(run.path, 0).close(),
    "metrics.jsonl": lambda run: MetricsWriter(run.path, 0).close(),
    "lock": lambda run: None,
    "logs/host_000.log": lambda run: run.event("preempted"),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_in_a_workdir_is_not_written_through(tmp_path, name, is_there):
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "run" / name
    if is_there:
        elsewhere.write_text("precious")
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    run = Workdir(tmp_path / "run")
    WRITERS[name](run)
    run.close()
    assert elsewhere.exists() == is_there
    assert not is_there or elsewhere.read_text() == "precious"
    assert not link.is_symlink()


FOLDERS = ["checkpoints", "evals", "interpolate", "logs", "pretrain", "processes", "tensorboard"]


@pytest.mark.parametrize("name", [*FOLDERS, "evals/scenes_swap", "checkpoints/12"])
def test_a_linked_folder_in_a_workdir_is_refused(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "run" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=f"{name} is a link to {tmp_path}/elsewhere"):
        Workdir(tmp_path / "run")
    assert not list((tmp_path / "elsewhere").iterdir())


PIPES = ["metrics.jsonl", "events.jsonl", "config.json", "lock", "logs", "logs/host_000.log"]


@pytest.mark.parametrize("name", [*PIPES, "evals", "evals/scenes_swap/6.json", "checkpoints"])
def test_a_pipe_in_a_workdir_is_refused_and_not_waited_for(tmp_path, name):
    pipe = tmp_path / "run" / name
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match=f"{name} is not a regular file"):
        Workdir(tmp_path / "run")
    pipe.unlink()
    pipe.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=f"{name} is not a regular file"):
        Workdir(tmp_path / "run")


def test_a_folder_of_the_user_in_a_workdir_may_be_a_link(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/photos").symlink_to(tmp_path)
    Workdir(tmp_path / "run").close()


def test_a_file_is_replaced_all_or_nothing_and_takes_any_text(tmp_path):
    file = tmp_path / "page.html"
    for text in ("first", "second \ud800"):
        workdir_files.replace(file, text)
    assert file.read_text() == "second ?"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
