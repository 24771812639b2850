"""The rows of a table that are records: splits, holdouts, rows of one image, ids."""

import pickle

import pytest

from tests.support import helpers, table_files
from tests.support.helpers import write_rows
from tests.support.table_files import KINDS, table, write
from vlc_jax.input_pipeline import batch
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import holdout, joined_rows, row_keys
from vlc_jax.input_pipeline.sources.records import RecordsSource


@pytest.fixture
def folder(tmp_path):
    return table_files.write_images(tmp_path)


def test_a_split_column_selects_rows_and_lists_the_known_splits(folder):
    path = write_rows(folder / "a.jsonl", table(part=lambda i: "val" if i % 4 == 0 else "train"))
    options = {"path": path, "split_column": "part"}
    train, val = RecordsSource("train", **options), RecordsSource("val", **options)
    assert [len(train), len(val), len(RecordsSource("all", **options))] == [9, 3, 12]
    assert [val[i].image.name for i in range(3)] == ["p00.jpg", "p04.jpg", "p08.jpg"]
    with pytest.raises(ValueError, match=r"no row of split 'test'; splits: val \(3\), train \(9\)"):
        RecordsSource("test", **options)


def test_an_image_in_two_splits_is_counted_in_a_warning(folder, caplog):
    part = lambda i: "val" if i % 4 == 0 else "train"  # noqa: E731
    rows = [*table(part=part), *table(part=part)]
    options = {"path": folder / "a.jsonl", "split_column": "part"}
    write_rows(options["path"], rows)
    source = RecordsSource("val", **options)
    assert source.images_per_split() == {"train": 9, "val": 3}
    assert not caplog.text
    rows[12]["part"] = "train"
    write_rows(options["path"], rows)
    for source in (RecordsSource("val", **options), RecordsSource("all", **options)):
        source.images_per_split()
        assert "1 images are in more than one split; were rows divided" in caplog.text
        caplog.clear()


def test_holdout_divides_images_and_not_rows(folder):
    double = [row | {"caption": text} for row in table() for text in ("one", "other")]
    options = {"path": write_rows(folder / "a.jsonl", double)}
    train = RecordsSource("train", holdout=0.4, **options)
    held = RecordsSource("validation", holdout=0.4, **options)
    names = [{source[i].image.name for i in range(len(source))} for source in (train, held)]
    assert (train.rows + held.rows, len(train) + len(held)) == (24, 12)
    assert names[0]
    assert names[1]
    assert not names[0] & names[1]
    options["path"] = write_rows(folder / "b.jsonl", table()[::-1])
    again = RecordsSource("validation", holdout=0.4, **options)
    assert {again[i].image.name for i in range(len(again))} == names[1]


SPELLINGS = ["./{}", "{folder}/{}", "here/{}", "deep/../{}", "here\\{}", "soft_{}", "hard_{}"]


@pytest.mark.parametrize(("exact", "count"), [(10_000, 7), (0, 5)])
def test_spellings_of_one_file_are_one_image(folder, monkeypatch, exact, count):
    monkeypatch.setattr(holdout, "EXACT_ROWS", exact)
    (folder / "here").symlink_to(folder)
    (folder / "deep").mkdir()
    for name in image_names(RecordsSource(path=write(folder, "jsonl"))):
        (folder / f"soft_{name}").symlink_to(name)
        (folder / f"hard_{name}").hardlink_to(folder / name)
    rows = [
        row | {"image": spelling.format(row["image"], folder=folder)}
        for spelling in ("{}", *SPELLINGS[:count])
        for row in table()
    ]
    options = {"path": write_rows(folder / "a.jsonl", rows), "holdout": 0.3}
    train, held = (RecordsSource(split, **options) for split in ("train", "validation"))
    assert len(train) + len(held) == 12
    assert {len(source[0].captions) for source in (train, held)} == {count + 1}
    assert sum(train.images_per_split().values()) == 12
    plain = RecordsSource("validation", path=folder / "captions.jsonl", holdout=0.3)
    assert image_names(held) == image_names(plain)
    (folder / "no.txt").write_text("p03.jpg\n")
    assert len(RecordsSource("all", exclude=folder / "no.txt", **options)) == 11


def image_names(source):
    return {source[i].image.name for i in range(len(source))}


@pytest.mark.parametrize(("share", "held"), [(0.2, 5), (0.01, 1), (0.99, 23)])
def test_a_holdout_of_a_small_table_is_an_exact_number_of_images(tmp_path, share, held):
    path = helpers.write_jsonl(tmp_path, helpers.write_photos(tmp_path, 24))
    train = RecordsSource("train", path=path, holdout=share)
    validation = RecordsSource("validation", path=path, holdout=share)
    assert (len(train), len(validation)) == (24 - held, held)
    counts = RecordsSource("all", path=path, holdout=share).images_per_split()
    assert counts == {"train": 24 - held, "validation": held}


def test_an_image_that_is_added_moves_one_other_at_most(tmp_path):
    names = helpers.write_photos(tmp_path, 24)
    options = {"path": tmp_path / "captions.jsonl", "holdout": 0.2}
    before: set[str] = set()
    for count in range(12, 25):
        helpers.write_jsonl(tmp_path, names[:count])
        held = image_names(RecordsSource("validation", **options))
        assert len((held ^ before) - {names[count - 1]}) <= 1 or not before
        before = held


def test_in_a_large_table_no_image_ever_moves(tmp_path, monkeypatch):
    monkeypatch.setattr(holdout, "EXACT_ROWS", 11)
    names = helpers.write_photos(tmp_path, 24)
    options = {"path": tmp_path / "captions.jsonl", "holdout": 0.4}
    helpers.write_jsonl(tmp_path, names[:12])
    before = image_names(RecordsSource("validation", **options))
    helpers.write_jsonl(tmp_path, names)
    assert before == image_names(RecordsSource("validation", **options)) & {*names[:12]}


def test_excluded_images_do_not_change_which_others_are_held_out(tmp_path):
    names = helpers.write_photos(tmp_path, 24)
    path = helpers.write_jsonl(tmp_path, names)
    (tmp_path / "excluded.txt").write_text("\n".join(names[:8]))
    held = image_names(RecordsSource("validation", path=path, holdout=0.4))
    train = RecordsSource("train", path=path, holdout=0.4, exclude=tmp_path / "excluded.txt")
    assert image_names(train) == {*names[8:]} - held


def test_a_validation_split_of_the_training_rows_is_refused(folder):
    with pytest.raises(ValueError, match=r"split_column.*holdout.*split='all'"):
        RecordsSource("validation", path=write(folder, "jsonl"))


def test_rows_of_one_image_have_ids_of_their_own(folder):
    path = write_rows(folder / "a.jsonl", [*table(), *table()])
    source = RecordsSource(path=path, join_rows=False)
    assert len({source[i].id for i in range(24)}) == 24


def flat(rows):
    """Rows as lists of captions -> a row per caption, first all first captions, then all second."""
    return [row | {"caption": row["caption"][k]} for k in range(2) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_per_caption_gives_the_records_of_lists(folder, kind):
    rows = [row | {"caption": [f"{row['caption']} a", "b"]} for row in table()]
    lists = RecordsSource(path=write_rows(folder / "lists.jsonl", rows))
    source = RecordsSource(path=write(folder, kind, flat(rows)))
    assert [source[i] for i in range(len(source))] == [lists[i] for i in range(12)]
    assert source.rows == 24
    assert pickle.loads(pickle.dumps(source))[11] == source[11] == source[-1]
    with pytest.raises(IndexError):
        source[12]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("first", "last"), [(4, 12), (6, 10)])
def test_an_image_of_too_many_rows_ends_the_pass(folder, kind, first, last, monkeypatch):
    rows = table(image=lambda n: "p00.jpg" if first <= n < last else str(n))
    path, names, hash_id = write(folder, kind, rows), [], batch.hash_id
    monkeypatch.setattr(row_keys, "_FIRST_CHECK", 4)
    monkeypatch.setattr(joined_rows, "_MAX_ROWS", 3)
    monkeypatch.setattr(batch, "hash_id", lambda text: names.append(text) or hash_id(text))
    with pytest.raises(DataError, match=f"row {first + 1} of .* and at least 3 others have one"):
        RecordsSource(path=path)
    assert names.count("p00.jpg") == 4


def test_joined_rows_alone_change_the_fingerprint(folder, caplog):
    caplog.set_level("INFO")
    path = write(folder, "jsonl")
    apart = RecordsSource(path=path, join_rows=False).fingerprint
    assert RecordsSource(path=path).fingerprint == apart
    path = write_rows(folder / "twice.jsonl", [*table(), *table()])
    apart = RecordsSource(path=path, join_rows=False).fingerprint
    assert not caplog.text
    assert RecordsSource(path=path).fingerprint != apart
    assert "24 rows of train are 12 records, one per image" in caplog.text


def test_damaged_rows_are_joined_with_no_other(folder):
    rows = [*table(), *({"image": name, "caption": "x"} for name in ("", "", None, None))]
    path = write_rows(folder / "a.jsonl", rows)
    path.write_text(path.read_text() + '{"image": "p00\n{"image": "p01\n')
    source = RecordsSource(path=path)
    assert len(source) == source.rows == 18
    for index in range(12, 18):
        with pytest.raises(DataError, match=f"row {index + 1} of"):
            source[index]


HARD = {
    "negatives_column": "not",
    "negative_kinds_column": "kind",
    "positives_column": "same",
    "hard_images_column": "near",
    "id_column": "id",
}


def test_hard_texts_of_joined_rows_stay_with_their_captions(folder):
    rows = [
        {"image": "p00.jpg", "caption": ["a", "b"], "not": ["x", "y"], "kind": "k", "id": 1},
        {"image": "p01.jpg", "caption": "c", "near": [3, 9], "id": 2},
        {"image": "p00.jpg", "caption": "d", "near": [2], "same": ["e"], "id": 3},
        {
            "image": "p00.jpg",
            "caption": "f",
            "not": [["z"]],
            "kind": [["l"]],
            "near": [1, 2],
            "id": 4,
        },
    ]
    path = write_rows(folder / "a.jsonl", rows)
    source = RecordsSource(path=path, meta_columns=("id", "image"), **HARD)
    record = source[0]
    assert record.captions == ["a", "b", "d", "f"]
    assert record.negatives == [["x", "y"], ["x", "y"], [], ["z"]]
    assert record.negative_kinds == [["k", "k"], ["k", "k"], [], ["l"]]
    assert record.positives == [[], [], ["e"], []]
    # a record is named by its first row, and is no hard image of itself
    assert (record.id, record.hard_images, source[1].hard_images) == ("1", ["2"], ["1", "9"])
    assert source.find("4") == source.find("1") == record
    assert record.meta == {"id": [1, 3, 4], "image": "p00.jpg"}
    rows[3].pop("kind")
    source = RecordsSource(path=write_rows(path, rows), **HARD)
    with pytest.raises(
        DataError, match=r"row 1 of .* some rows of its image have kinds of their neg"
    ):
        source[0]


def test_rows_of_one_image_may_share_an_id_and_have_one_group(folder):
    rows = [row | {"id": n, "part": n // 12} for n, row in enumerate([*table(), *table()])]
    options = {"path": folder / "a.jsonl", "id_column": "id", "group_column": "part"}
    source = RecordsSource(path=write_rows(options["path"], rows), group_column="part")
    with pytest.raises(
        DataError, match=r"row 1 of .* group \(group_column\) is 0 and 1; .*join_rows"
    ):
        source[0]
    for row in rows:
        row |= {"id": row["image"], "part": "all"}
    write_rows(options["path"], rows)
    source = RecordsSource(**options)
    assert (source.find("p03.jpg"), source[3].group) == (source[3], "all")
    rows[20]["id"] = "p00.jpg"
    write_rows(options["path"], rows)
    with pytest.raises(DataError, match=r"row 21 of .*the id 'p00\.jpg' occurs twice"):
        RecordsSource(**options)


def test_a_pickled_source_is_small_and_reads_the_same(folder):
    for kind in KINDS:
        source = RecordsSource(path=write(folder, kind))
        expected = source[7]
        data = pickle.dumps(source)
        assert len(data) < 5_000
        del source  # with its open file, whose number means nothing in another process
        assert pickle.loads(data)[7] == expected


def test_the_fingerprint_follows_the_rows_and_their_choice(folder, monkeypatch):
    path = write(folder, "jsonl")
    first = RecordsSource(path=path).fingerprint
    assert RecordsSource(path=path).fingerprint == first
    held_out = RecordsSource(path=path, holdout=0.2).fingerprint
    assert held_out != first
    monkeypatch.setattr(holdout, "EXACT_ROWS", 0)  # other rows of the same file
    assert RecordsSource(path=path, holdout=0.2).fingerprint not in (first, held_out)
    path.write_text(path.read_text().replace("number 3", "number three"))
    assert RecordsSource(path=path).fingerprint != first


def test_a_split_that_no_holdout_makes_is_refused(tmp_path):
    path = helpers.write_jsonl(tmp_path, helpers.write_photos(tmp_path, 12))
    held_out = RecordsSource("validation", path=path, holdout=0.5)
    for split in ("val", "test"):
        found = RecordsSource(split, path=path, holdout=0.5)
        assert [found[i].id for i in range(len(found))] == [
            held_out[i].id for i in range(len(held_out))
        ]
    with pytest.raises(ValueError, match=r"split 'nope' of .* a holdout makes 'train' and 'valid"):
        RecordsSource("nope", path=path, holdout=0.5)
