"""One owner at a time, a config that cannot change unnoticed, files that are never half there."""

import errno
import json
import logging
import re
import subprocess
import sys

import pytest

from tests.support import helpers
from vlc_jax.errors import UsageError
from vlc_jax.evaluation.benchmarks import Evaluation
from vlc_jax.run import workdir, workdir_files
from vlc_jax.run.workdir import EVAL_FIELDS, Workdir
from vlc_jax.train import batches, loop

HOLD = """
import sys, time
from vlc_jax.run.workdir import Workdir
run = Workdir(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_job_is_refused_and_a_dead_lock_recovered(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    variables = helpers.environment()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=variables) as job:
        assert job.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=rf"in use by host \S+ pid {job.pid}"):
            Workdir(tmp_path)
        job.kill()
    Workdir(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to workdir"):
        Workdir(tmp_path / "file" / "run")


@pytest.mark.parametrize("is_new", [True, False])
def test_a_run_that_is_refused_leaves_nothing_of_its_own(tmp_path, is_new):
    folder = tmp_path / "runs" / "a"
    if not is_new:
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("mine")
    before = {*tmp_path.rglob("*")}
    Workdir(folder).close()
    assert before == {*tmp_path.rglob("*")}
    begun = Workdir(folder)
    begun.claim({})
    begun.close()
    assert (folder / "config.json").exists()
    assert (folder / "lock").exists()


def test_a_lock_that_a_refused_job_removes_meanwhile_is_none(tmp_path, monkeypatch):
    def locked(file, kind):
        (tmp_path / "lock").unlink()

    monkeypatch.setattr(workdir_files.fcntl, "flock", locked)
    with pytest.raises(UsageError, match="in use by another job"):
        Workdir(tmp_path)


@pytest.fixture
def run(tmp_path):
    run = Workdir(tmp_path)
    yield run
    run.close()


def saved(run):
    """The run as it is once a state was saved."""
    (run.path / "checkpoints" / "4").mkdir(parents=True)
    return run


def test_a_changed_config_is_refused_as_a_diff_unless_allowed(run):
    old = {
        "optimizer": {"learning_rate": 1e-3, "mu_dtype": "float32", "betas": (0.9, 0.98)},
        "log_every": 10,
    }
    saved(run).claim(old)
    run.check_config(old, allow_change=False)  # tuples come back from JSON as lists
    new = old | {"optimizer": old["optimizer"] | {"learning_rate": 3e-4}}
    with pytest.raises(UsageError, match=r"optimizer.learning_rate: 0.001 -> 0.0003"):
        run.check_config(new, allow_change=False)
    assert json.loads((run.path / "config.json").read_text())["optimizer"]["learning_rate"] == 1e-3
    run.check_config(new, allow_change=True)


def test_a_run_that_saved_nothing_may_change_its_config(run):
    run.claim({"steps": 1})
    run.write_env(input={"train": "a"})
    run.check_config({"steps": 2}, allow_change=False)
    run.check_data({"train": "b"}, allow_change=False)


def config_with(options):
    """The config of a source with these options."""
    return {"input": {"source_options": options}}


def test_the_order_of_training_cannot_change_and_paths_can(run):
    shards = {"path": "x", "shuffle": "global", "stage": None}
    saved(run).claim(config_with(shards))
    run.check_config(config_with(shards | {"stage": "a"}), allow_change=False)
    with pytest.raises(UsageError, match=r"input.source_options.shuffle: global -> blocks"):
        run.check_config(config_with(shards | {"shuffle": "blocks"}), allow_change=False)


def test_a_config_of_another_version_names_the_lacking_fields(run):
    saved(run).claim({"model": {"variant": "B/32"}})
    with pytest.raises(UsageError, match=r"model.text_tower: \(absent\) -> True"):
        run.check_config({"model": {"variant": "B/32", "text_tower": True}}, allow_change=False)


def test_fields_that_change_nothing_computed_may_change(run):
    asked = {"image_size": 40, "question": "", "text_only_question": ""}
    saved(run).claim({"steps": 1, "log_every": 10, "input": {"loader": {"threads": 2}, **asked}})
    config = {"steps": 1, "log_every": 5, "input": {"loader": {"threads": 1}, **asked}}
    run.check_config(config, allow_change=False)
    config["input"]["image_size"] = 64
    with pytest.raises(UsageError, match=r"input.image_size: 40 -> 64"):
        run.check_config(config, allow_change=False)
    config["input"] |= {"image_size": 40, "question": "What is there?"}
    with pytest.raises(UsageError, match=r"input.question:  -> What is there\?"):
        run.check_config(config, allow_change=False, fields=EVAL_FIELDS)


def test_changed_data_is_refused(run):
    saved(run).write_env(input={"train": "a"})
    run.check_data({"train": "a"}, allow_change=False)
    with pytest.raises(UsageError, match="train: a -> b"):
        run.check_data({"train": "b"}, allow_change=False)


def test_images_of_another_size_are_refused(run):
    saved(run).write_env(image_sizes={"a.jpg": 10, "b.jpg": 20, "bad.jpg": 0})
    run.check_images({"a.jpg": 10, "mended.jpg": 30}, allow_change=False)
    with pytest.raises(
        UsageError, match=r"1 of 2 checked image files .* other sizes .*\n  b.jpg: 20 -> 21"
    ):
        run.check_images({"a.jpg": 10, "b.jpg": 21}, allow_change=False)
    run.check_images({"b.jpg": 21}, allow_change=True)
    run.write_env(input={})  # of a run that measured none
    run.check_images({"b.jpg": 21}, allow_change=False)


@pytest.mark.parametrize(
    "content",
    [b"[1]", b"5", b"\xff", b'{"a"', b"[" * 99_999, b'{"a": ' * 9_999, b"9" * 5_000],
    ids=range(7),
)
def test_a_config_of_something_else_is_an_error_naming_it(run, content):
    saved(run)
    for name, check in (("config.json", run.check_config), ("env.json", run.check_data)):
        (run.path / name).write_bytes(content)
        with pytest.raises(UsageError, match=re.escape(name)):
            check({"train": "a"}, allow_change=False)
    with pytest.raises(UsageError, match=r"config\.json"):
        workdir.saved_config(run.path)


@pytest.mark.parametrize("content", ['{"a.b": 1}', '{"": {"a.b": 1}}', '{"steps": {"c.d": []}}'])
def test_names_that_no_config_can_have_name_the_file(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UsageError, match=r"config\.json is not the config of a run"):
        workdir.saved_config(tmp_path)


def test_an_environment_without_fingerprints_is_an_error(run):
    saved(run).write_env(input=["a"])
    with pytest.raises(UsageError, match=r"env\.json holds no fingerprints"):
        run.check_data({"train": "a"}, allow_change=False)


def test_done_and_failed_exclude_each_other(run):
    run.fail(10, "diverged")
    assert json.loads((run.path / "FAILED").read_text())["exit_code"] == 10
    run.claim({})
    assert not (run.path / "FAILED").exists()
    run.finish(step=3)
    assert json.loads((run.path / "DONE").read_text()) == {"step": 3}
    run.claim({})
    assert not (run.path / "DONE").exists()


def test_an_event_after_half_a_row_starts_a_row_of_its_own(run):
    (run.path / "events.jsonl").write_text('{"event": "start"}\n{"event": "bad_rec')
    run.event("resume", step=3)
    rows = (run.path / "events.jsonl").read_text().splitlines()
    assert [json.loads(rows[0])["event"], json.loads(rows[2])["event"]] == ["start", "resume"]


def test_events_of_any_form_are_read(run):
    run.event("bad_record", id="a", reason="cut")
    rows = [{"a": 1}, {"event": ["bad_record"]}, {"event": "bad_record"}, [1]]
    rows.append({"event": "bad_record", "id": {"b": 1}})
    with (run.path / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert batches.known_bad(run) == ["a"]


class NoSpace(Evaluation):
    """Has no room for its report."""

    def __init__(self):
        self.steps = []

    def publish(self, step):
        self.steps.append(step)
        raise OSError(errno.ENOSPC, "No space left on device", "report.html")


def test_a_full_disk_after_done_is_a_line_and_the_run_stays_done(run, capsys):
    (run.path / "events.jsonl").symlink_to("/dev/full")
    evaluation = NoSpace()
    loop.finish(run, evaluation, 3)
    assert json.loads((run.path / "DONE").read_text()) == {"step": 3}
    assert evaluation.steps == [3]  # the table is printed all the same
    (line,) = capsys.readouterr().err.splitlines()
    assert "the run is done" in line
    assert "No space left on device" in line
    with pytest.raises(FileNotFoundError), run.after_done():
        (run.path / "nothing").read_text()


def test_a_log_without_room_is_one_line_and_no_traceback(tmp_path, capsys):
    run = Workdir(tmp_path)
    run._handler.setStream(open("/dev/full", "a")).close()  # noqa: SIM115, the log closes it
    run.event("preempted", signal="SIGTERM")
    run.event("preempted", signal="SIGTERM")
    logging.warning("a %s line", "third")
    run.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lines are missing in {tmp_path / 'logs' / 'host_000.log'}")
    assert "No space left on device" in line
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 2
