"""vlc-jax nearest: the neighbours equal those of a full matrix, and training reads its table."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.support import helpers
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.examples import Examples
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.tools import nearest

COUNT, WIDTH, BAD, COPY = 13, 8, 4, (2, 7)  # image 4 cannot be read, 7 is a copy of 2


def brute_force(rows, count, allowed):
    """Indices of the nearest rows by one full matrix; of equal cosines the first."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = np.where(allowed[None] & ~np.eye(len(rows), dtype=bool), unit @ unit.T, -np.inf)
    cosines = np.nan_to_num(cosines, nan=-np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return order, np.take_along_axis(cosines, order, axis=1)


@pytest.fixture
def folder(tmp_path):
    names = helpers.write_photos(tmp_path, COUNT, ".png")
    rows = np.random.default_rng(0).standard_normal((COUNT, WIDTH)).astype(np.float32)
    rows[COPY[1]], rows[BAD] = 2 * rows[COPY[0]], np.nan
    np.save(tmp_path / "x.npy", rows)
    helpers.write_rows(tmp_path / "x.jsonl", names)
    table = [{"image": name, "caption": f"picture {i}"} for i, name in enumerate(names)]
    table.append({"image": names[0], "caption": "picture 0 again"})
    helpers.write_rows(tmp_path / "table.jsonl", table)
    return SimpleNamespace(path=tmp_path, names=names, rows=rows)


def mine(folder, out="out.jsonl", *words, features="x.npy", table="table.jsonl"):
    path = folder.path
    words = ["--features", path / features, "--table", path / table, "--out", path / out, *words]
    summary = nearest.mine(nearest.command_line_parser().parse_args(list(map(str, words))))
    return summary, path


def test_blocks_of_any_size_equal_one_matrix(folder):
    features = nearest.Features(folder.rows, folder.names)
    allowed = np.arange(COUNT) != 9  # such as an image that is not in the table
    expected, cosines = brute_force(folder.rows, 3, allowed)
    for block, rows in ((5, 4), (COUNT, COUNT), (100, 100)):
        blocks = nearest.neighbours(features, allowed, 3, block=block, rows=rows)
        _, values, found = map(list, zip(*blocks, strict=True))
        values, found = np.concatenate(values), np.concatenate(found)
        assert (values[BAD] == -np.inf).all()
        usable = np.arange(COUNT) != BAD
        np.testing.assert_array_equal(found[usable], expected[usable])
        np.testing.assert_allclose(values[usable], cosines[usable], atol=1e-6)
    assert not np.isin(found[usable], [BAD, 9]).any()


def test_each_row_of_the_table_has_the_neighbours_of_its_image(folder):
    summary, path = mine(folder)
    assert f"{COUNT + 1} rows, each with the 3 nearest of {COUNT} images; 1 images have" in summary
    whole = helpers.rows(path / "out.jsonl")
    assert whole[0]["hard_images"] == whole[-1]["hard_images"]  # two captions of one image
    assert whole[COPY[0]]["hard_images"][0] == folder.names[COPY[1]]
    assert whole[BAD]["hard_images"] == []
    mine(folder, "blocks.jsonl", "--block", "4")
    assert helpers.rows(path / "blocks.jsonl") == whole


def test_copies_are_left_out_below_a_cosine(folder):
    _, path = mine(folder, "out.jsonl", "--below", "0.999")
    rows = helpers.rows(path / "out.jsonl")
    assert folder.names[COPY[1]] not in rows[COPY[0]]["hard_images"]
    assert max(cosine for row in rows for cosine in row["cosines"]) < 0.999


def test_training_reads_the_neighbours_as_hard_images(folder):
    _, path = mine(folder)
    source = make_source(
        "records",
        "train",
        path=path / "out.jsonl",
        id_column="id",
        hard_images_column="hard_images",
    )
    examples = Examples(source, ImageTransform(8), 0, np.inf, {}, hard_images=2)
    examples.check()
    mined = {row["id"]: row["hard_images"] for row in helpers.rows(path / "out.jsonl")}
    for number in range(5):
        main, *others = examples.group(number, {})
        named = {other.record.id for other in others if not other.is_stand_in}
        assert named <= {*mined[main.record.id]}
        assert len(named) == (2 if mined[main.record.id] else 0)


def test_wrong_requests_say_what_to_do(folder):
    path = folder.path
    mine(folder)
    with pytest.raises(UsageError, match="exists; name a new file"):
        mine(folder)
    with pytest.raises(UsageError, match="has the column 'hard_images' already"):
        mine(folder, "a.jsonl", table="out.jsonl")
    (path / "more.jsonl").write_text('{"image": "none.jpg", "caption": "a"}\n')
    with pytest.raises(UsageError, match=r"1 of 1 images .*'none.jpg': vlc-jax embed"):
        mine(folder, "a.jsonl", table="more.jsonl")
    with pytest.raises(UsageError, match=r"there is no file .*z.npy"):
        mine(folder, "a.jsonl", features="z.npy")
    (path / "x.jsonl").write_text('"a"\n')
    with pytest.raises(DataError, match=r"has 1 names, .* 13 rows"):
        mine(folder, "a.jsonl")
