"""Embeddings of many images in a file that a killed run goes on with."""

import json
import pickle
import tempfile

import cloudpickle
import numpy as np
import pytest

import vlc_jax
from tests.support import helpers
from vlc_jax.devices import runtime
from vlc_jax.encode import inference
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.commands.parts import in_this_process
from vlc_jax.tools import command, embed


@pytest.fixture
def model(tiny):
    return tiny[0]


@pytest.fixture
def photos(tmp_path):
    """Eleven pictures in two folders, of which one is damaged, and a file that is none."""
    folder = tmp_path / "photos"
    helpers.write_photos(folder, 6)
    helpers.write_photos(folder / "more", 5, ".PNG")
    (folder / "more" / "photo_3.PNG").write_bytes(b"no picture")
    (folder / "notes.txt").write_text("no picture")
    return folder


def run(*words, engine=None):
    return embed.embed(embed.command_line_parser().parse_args([*map(str, words)]), engine)


def test_rows_are_what_embed_images_gives_and_bad_ones_are_nan(model, photos, tmp_path):
    out = tmp_path / "x.npy"
    said = run("--model", model, "--images", photos, "--out", out, "--batch_size", "4")
    assert said == (
        f"{out}: embeddings of 11 images, 24 wide; 1 cannot be read, see {tmp_path}/x.bad.jsonl, "
        "and are NaN"
    )
    names, rows = helpers.rows(out.with_suffix(".jsonl")), np.load(out, mmap_mode="r")
    assert names == sorted(names)
    assert names[:2] == ["more/photo_0.PNG", "more/photo_1.PNG"]
    assert (rows.dtype, rows.shape) == (np.float32, (11, 24))
    (bad,) = helpers.rows(tmp_path / "x.bad.jsonl")
    assert (bad["row"], bad["name"]) == (3, "more/photo_3.PNG")
    assert "is not an image Pillow knows" in bad["reason"]
    assert np.isnan(rows[3]).all()
    good = [row for row in range(11) if row != 3]
    expected = vlc_jax.load(model).embed_images([photos / names[row] for row in good])
    np.testing.assert_allclose(rows[good], expected, atol=1e-6)
    assert json.loads((tmp_path / "x.json").read_text())["count"] == 11
    assert run("--model", model, "--images", photos, "--out", out).startswith(f"{out}: embeddings")


class Kill(BaseException):
    pass


def test_a_killed_run_continues_and_has_the_bytes_of_a_whole_one(
    model, photos, tmp_path, monkeypatch
):
    monkeypatch.setattr(embed, "BATCHES", 2)
    words = ("--model", model, "--images", photos, "--batch_size", "2")
    run(*words, "--out", tmp_path / "whole.npy")
    out, seen, compute = tmp_path / "x.npy", [], inference.Model.embed_images

    def dies(self, images):
        seen.extend([len(images)] if images else [])
        if images and len(seen) == 3:  # in the second of three parts
            raise Kill
        return compute(self, images)

    monkeypatch.setattr(inference.Model, "embed_images", dies)
    with pytest.raises(Kill):
        run(*words, "--out", out)
    assert [path.name for path in tmp_path.glob("x.*")] == ["x.npy.parts"]
    run(*words, "--out", out)
    assert seen == [2] * 7
    # killed between the files
    (tmp_path / "y.json").write_bytes((tmp_path / "x.json").read_bytes())
    (tmp_path / "y.jsonl").write_text("[")
    run(*words, "--out", tmp_path / "y.npy")
    for path in (*tmp_path.glob("x.*"), *tmp_path.glob("y.*")):
        whole = tmp_path / f"whole{path.name[1:]}"
        assert path.read_bytes() == whole.read_bytes(), path


def worker(work, numbers):
    """Gets the pickled work, and writes these of its parts."""
    copy = pickle.loads(cloudpickle.dumps(work))
    return [copy.write(number) for number in numbers]


def half(work, report, advance):
    worker(work, [1])
    raise Kill


def workers(work, report, advance):
    before = work.path(1).stat().st_ino
    worker(work, reversed(range(work.count)))
    assert work.path(1).stat().st_ino == before  # finished before


@pytest.mark.parametrize("kind", ["--images", "--texts"])
def test_parts_of_workers_are_the_rows_of_one_process(model, photos, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(embed, "BATCHES", 2)
    (tmp_path / "texts.txt").write_text("".join(f"text {n}\n" for n in range(11)))
    source = photos if kind == "--images" else tmp_path / "texts.txt"
    words = ("--model", model, kind, source, "--batch_size", "2")
    run(*words, "--out", tmp_path / "one.npy")
    out = tmp_path / "parts.npy"
    with pytest.raises(Kill):
        run(*words, "--out", out, engine=half)
    run(*words, "--out", out, engine=workers)
    for path in tmp_path.glob("one.*"):
        assert out.with_name(f"parts{path.name[3:]}").read_bytes() == path.read_bytes(), path
    assert not out.with_name("parts.npy.parts").exists()


def test_an_accelerator_has_one_process(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(command.parts, "engine", lambda *_: in_this_process)
    flags = ["--direct_running_mode=multi_processing"]
    assert command.engine("DirectRunner", [], flags) is in_this_process  # on CPUs
    monkeypatch.setattr(runtime, "is_cpu", lambda: False)
    monkeypatch.setattr(runtime, "_CLAIMED", [])
    runtime.claim.cache_clear()
    with pytest.raises(UsageError, match="one process per accelerator, and this one has them"):
        command.engine("DirectRunner", [], flags)
    runtime.claim.cache_clear()  # as in another process
    with pytest.raises(UsageError, match="start one worker process per accelerator"):
        runtime.claim(seconds=0.0)
    (file,) = runtime._CLAIMED
    file.close()
    runtime.claim(seconds=0.0)
    runtime._CLAIMED[-1].close()
    runtime.claim.cache_clear()


def test_another_input_or_model_is_refused(model, photos, tmp_path):
    out = tmp_path / "x.npy"
    words = ("--model", model, "--images", photos, "--out", out, "--batch_size", "16")
    run(*words)
    picture = (photos / "photo_0.jpg").read_bytes()
    (photos / "photo_0.jpg").write_bytes(picture + b"more")
    with pytest.raises(UsageError, match=r"x.json was begun with images '\w+', not '\w+'; use"):
        run(*words)
    (photos / "photo_0.jpg").write_bytes(picture)
    run(*words)
    helpers.write_photos(photos / "yet more", 1)
    with pytest.raises(UsageError, match="begun with count 11, not 12"):
        run(*words)
    (photos / "yet more" / "photo_0.jpg").unlink()
    with pytest.raises(UsageError, match="begun with count 11, not 1;"):
        run("--model", model, "--texts", photos / "notes.txt", "--out", out)
    with pytest.raises(UsageError, match="begun with model "):
        run(*words, "--image_size", "24")
    out.with_suffix(".json").unlink()
    with pytest.raises(UsageError, match=r"x.npy exists, without .*x.json; name a new file"):
        run(*words)


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_table_beside_the_embeddings_is_not_overwritten(model, photos, suffix):
    table = helpers.write_jsonl(photos, ["photo_0.jpg"]).rename(photos / f"rows{suffix}")
    if suffix == ".json":
        table.write_text(f"[{table.read_text()}]")
    before = table.read_text()
    words = ("--model", model, "--images", table, "--out", photos / "rows.npy")
    with pytest.raises(UsageError, match=rf"rows\{suffix} exists.*; name a new file"):
        run(*words)
    assert table.read_text() == before
    assert not (photos / "rows.npy.parts").exists()


def test_images_of_a_table_have_a_row_each_and_texts_one_per_line(model, photos, tmp_path):
    names = [f"photo_{i}.jpg" for i in (1, 0, 1, 2)]
    table = helpers.write_jsonl(photos, names)
    run("--model", model, "--images", table, "--batch_size", "2", "--out", tmp_path / "x.npy")
    assert helpers.rows(tmp_path / "x.jsonl") == [names[i] for i in (0, 1, 3)]
    run("--model", model, "--texts", table, "--out", tmp_path / "t.npy", "--batch_size", "3")
    texts = helpers.rows(tmp_path / "t.jsonl")
    assert texts == [f"picture number {i}" for i in range(4)]
    expected = vlc_jax.load(model).embed_texts(texts)
    np.testing.assert_allclose(np.load(tmp_path / "t.npy"), expected, atol=1e-6)


def test_wrong_requests_are_refused_in_one_line(model, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command.runtime, "connect", lambda *_: None)
    out, empty = ("--out", tmp_path / "x.npy"), tmp_path / "empty"
    empty.mkdir()
    for words, code, message in (
        (("--images", photos, "--out", tmp_path / "x.h5"), 2, "--out is a file X.npy"),
        (("--images", tmp_path / "none", *out), 2, "none"),
        (("--images", photos / "notes.txt", *out), 2, "notes.txt"),
        (("--images", empty, *out), 3, "no image files below"),
    ):
        with pytest.raises(SystemExit) as ended:
            embed.main(["--model", str(model), *map(str, words)])
        errors = capsys.readouterr().err
        assert ended.value.code == code, errors
        assert message in errors
        assert len(errors.splitlines()) == 1
