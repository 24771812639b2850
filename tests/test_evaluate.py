"""What an evaluation leaves alone in a workdir."""

from types import SimpleNamespace

from vlc_jax.evaluate import Evaluation


def test_files_of_no_step_are_left_when_later_steps_are_forgotten(tmp_path):
    evaluation = object.__new__(Evaluation)  # of which only the files are looked at
    evaluation.workdir = SimpleNamespace(path=tmp_path, is_writer=True)
    folder = tmp_path / "evals/scenes_attribute_swap"
    folder.mkdir(parents=True)
    for name in ("3.json", "5.json", "5.scores.jsonl", "².json", "notes.json"):
        (folder / name).write_text("{}")
    evaluation.forget_after(4)
    assert {path.name for path in folder.iterdir()} == {"3.json", "².json", "notes.json"}
