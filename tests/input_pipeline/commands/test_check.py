"""The look at data before training, from the command line and from training."""

import collections
import json
import re

import numpy as np
import pytest
from PIL import Image

from tests.input_pipeline.commands.test_engines import workers
from tests.support import generators, helpers
from vlc_jax.configs import records
from vlc_jax.input_pipeline.commands import check, check_parts, parts, prepare
from vlc_jax.input_pipeline.hard_texts import word_tables
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader import inspection
from vlc_jax.input_pipeline.loader.inspection import preview
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.tokenizers import make_tokenizer
from vlc_jax.input_pipeline.tokenizers.word_level import WordTokenizer


@pytest.fixture
def photos(tmp_path):
    """Twelve JPEG files in images/ and captions.jsonl, two captions each."""
    (tmp_path / "images").mkdir()
    rows = []
    for i in range(12):
        pixels = np.full((60 + i, 80, 3), 20 * i, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"p{i:02d}.jpg")
        captions = [f"grey photo {i}", "one of twelve grey photos costing $5 or $6"]
        rows.append({"image": f"p{i:02d}.jpg", "caption": captions})
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def arguments(photos, *more):
    return [str(photos / "captions.jsonl"), "--image-folder", str(photos / "images"), *more]


def truncate(path):
    path.write_bytes(path.read_bytes()[:400])


@pytest.mark.parametrize("name", ["image", "filepath"])
def test_good_data_exit_with_0_and_are_counted(photos, capsys, name):
    table = photos / "captions.jsonl"
    table.write_text(table.read_text().replace('"image"', f'"{name}"'))
    assert check.main(arguments(photos)) == 0
    text, said = capsys.readouterr()
    assert ("columns image=filepath" in said) == (name == "filepath")
    assert "12 of 12 records looked at: 12 usable, 0 bad" in text
    assert "24 captions (2.00 per record)" in text
    assert "12 different" in text
    assert "        3 " + "#" * 40 + " 12" in text
    assert "first bad record" not in text


def test_phrases_are_counted_in_captions_and_as_whole_words(photos, capsys):
    assert check.main(arguments(photos, "--phrases", "photos,GREY photo,hot,of")) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines() if "%" in line]
    assert table == [
        ["photos", "12", "50.000%"],
        ["GREY", "photo", "12", "50.000%"],
        ["hot", "0", "0.000%"],
        ["of", "12", "50.000%"],
        ["any", "of", "them", "24", "100.000%"],
    ]


def test_phrases_of_left_and_right_are_counted_by_default(photos, capsys):
    texts = ["A on the left, B on the right", "On the left, on the left", "to the left", "left"]
    rows = [{"image": f"p{i:02d}.jpg", "caption": text} for i, text in enumerate(texts)]
    (photos / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert check.main(arguments(photos, "--phrases")) == 0
    lines = capsys.readouterr().out.splitlines()
    counts = {line[:16].strip(): int(line[16:].split()[0]) for line in lines if "%" in line}
    expected = dict.fromkeys(word_tables.LEFT_RIGHT, 0)
    expected |= {"on the left": 2, "on the right": 1, "to the left": 1, "any of them": 3}
    assert counts == expected


def test_the_images_of_each_split_are_counted(photos, capsys):
    assert check.main(arguments(photos)) == 0
    assert "different images: train 10, validation 2" in capsys.readouterr().out
    assert check.main(arguments(photos, "--option", "holdout=0.5")) == 0
    assert "different images: train 6, validation 6" in capsys.readouterr().out
    assert records.get_config("path=a.jsonl").input.source_options.holdout == check.HOLDOUT


def test_bad_data_exit_with_3_and_the_first_bad_record_is_named(photos, capsys):
    truncate(photos / "images" / "p07.jpg")
    (photos / "images" / "p09.jpg").unlink()
    assert check.main(arguments(photos)) == 3
    captured = capsys.readouterr()
    assert "10 usable, 2 bad" in captured.out
    assert "first bad record: p07.jpg#8: image file" in captured.out
    assert "2 of 12 records cannot be used" in captured.err
    assert check.main(arguments(photos, "--max-bad-share", "0.2")) == 0


def test_four_samples_are_drawn_into_a_picture(photos, capsys):
    picture = photos / "check.png"
    assert check.main(arguments(photos, "--picture", str(picture))) == 0
    drawn = Image.open(picture)
    assert drawn.width > 2 * drawn.height > 400
    levels = np.asarray(drawn.convert("RGB"))[drawn.height // 2 - 60]
    runs = [level for level in np.unique(levels[:, 0]) if (levels[:, 0] == level).sum() > 50]
    assert len(runs) >= 4  # four grey images of different levels on white


def test_hard_texts_stand_below_the_captions(tmp_path, capsys, monkeypatch):
    names = helpers.write_photos(tmp_path, 4)
    rows = [
        {
            "image": name,
            "caption": [f"a red cat and a dog {i}", "on the left"],
            "negatives": [[f"a blue cat {i}"], []],
            "kinds": [["by_hand"], []],
        }
        for i, name in enumerate(names)
    ]
    table = helpers.write_rows(tmp_path / "captions.jsonl", rows)
    drawn, draw = [], check.draw_samples
    monkeypatch.setattr(check, "draw_samples", lambda *a: (drawn.append(a[0]), draw(*a)))
    words = [str(table), "--picture", str(tmp_path / "check.png")]
    for column in ("negatives_column=negatives", "negative_kinds_column=kinds"):
        words += ["--option", column]
    assert check.main([*words, "--kinds", "replace,left_right,swap,svlc_rule"]) == 0
    name, _, texts = drawn[0][0]
    assert name == "photo_0.jpg#1"
    negative = texts[4].text.removeprefix("svlc_rule: a ").removesuffix(" cat and a dog 0")
    assert negative in word_tables.SVLC_CLASSES["color"]
    assert [(line.side, line.text) for line in texts[:4] + texts[5:]] == [
        ("caption", "a red cat and a dog 0"),
        ("caption", "on the left"),
        ("negatives", "by_hand: a blue cat 0"),
        ("negatives", "left_right: -"),
        ("positives", "replace: a crimson cat and a dog 0"),
        ("positives", "swap: a dog 0 and a red cat"),
    ]
    pixels = np.asarray(Image.open(tmp_path / "check.png").convert("RGB")).astype(int)
    for near, far in ((0, 1), (1, 0)):  # red letters, and green ones, below the pictures
        below = pixels[pixels.shape[0] * 3 // 4 :]
        assert ((below[..., near] - below[..., far] > 60) & (below[..., 2] < 90)).sum() > 50

    option = '{"svlc_rule": {"classes": ["action"]}}'
    assert check.main([*words, "--kinds", "svlc_rule", "--generator-options", option]) == 0
    assert drawn[1][0][2][3] == ("negatives", "svlc_rule: -")
    capsys.readouterr()
    for more, message in (
        (("--kinds", "svlc"), "unknown kind 'svlc'; known: "),
        (("--generator-options", option), "'svlc_rule', which is not among --kinds"),
    ):
        assert check.main([*words, *more]) == 2
        assert message in capsys.readouterr().err


def test_kinds_that_give_themselves_away_are_named(tmp_path, capsys):
    """Stored ones and those of --kinds; few texts of --kinds are said to be few."""
    (name,) = helpers.write_photos(tmp_path, 1)
    nouns = ("cat", "dog", "man", "car", "hat")
    things = [(x, y) for x in nouns for y in nouns if x != y] * 4
    rows = [
        {"image": name, "id": str(i), "caption": f"a {x} and a {y}", "kinds": "mine",
         "negatives": [f"a {y} and a {x} ."], "positives": ["a"] * (i < 9)}
        for i, (x, y) in enumerate(things)
    ]  # fmt: skip
    table = helpers.write_rows(tmp_path / "captions.jsonl", rows)
    words = [str(table), "--kinds", "swap", "--kinds", "left_right", "--option", "join_rows=False"]
    for column in ("negatives", "positives"):
        words += ["--option", f"{column}_column={column}"]
    words += ["--option", "negative_kinds_column=kinds"]
    assert check.main(words) == 0
    out = capsys.readouterr().out
    lines = out[out.index("hard texts:") :].splitlines()
    kinds = ("  mine (negatives): blind ", "  swap (positives): blind ")
    assert lines.pop() == "  left_right (negatives): 0 pairs, too few to measure blind"
    assert [line[: len(kind)] for line, kind in zip(lines[1:], kinds, strict=True)] == [*kinds]
    mine, swap = (float(line.split()[3]) for line in lines[1:])
    assert mine > 95
    assert swap < 75
    assert lines[1].endswith(" % (chance 50), 80 pairs")


def test_the_samples_are_spread_over_the_data_and_usable(photos):
    truncate(photos / "images" / "p00.jpg")
    source = make_source(
        "records", "train", path=photos / "captions.jsonl", image_folder=photos / "images"
    )
    report = inspection.inspect(source)
    samples = [sample.record.id for sample in inspection.samples(source, report)]
    assert samples == ["p04.jpg#5", "p07.jpg#8", "p11.jpg#12", "p01.jpg#2"]


def test_parts_and_workers_say_what_one_process_says(photos, capsys, monkeypatch):
    truncate(photos / "images" / "p04.jpg")
    truncate(photos / "images" / "p06.jpg")
    out = photos / "shards"
    words = ["--source", "records", "--option", f"path={photos}/captions.jsonl"]
    words += ["--option", f"image_folder={photos}/images", "--size", "32", "--shard-size", "2"]
    prepare.main([*words, "--out", str(out), "--max-bad-share", "1", "--split", "all"])
    more = ["--phrases", "photos,GREY photo", "--max-bad-share", "1"]
    drawn = []
    monkeypatch.setattr(check, "draw_samples", lambda samples, path: drawn.append(samples))
    for data in (arguments(photos), [str(out)]):
        said = []
        for number, parts_of in enumerate(([], ["--parts", str(photos / "p"), "--part-size", "3"])):
            monkeypatch.setattr(parts, "engine", lambda *_, n=number: (None, workers)[n])
            words = [*data, *more, *parts_of, "--picture", "x.png", "--words", f"{photos}/{number}"]
            capsys.readouterr()
            assert check.main(words) == 0
            said.append(capsys.readouterr().out.replace(f"{photos}/{number}", ""))
        assert said[0] == said[1]
        is_table = data[0].endswith("jsonl")
        assert ("first bad record: p04.jpg#5" in said[0]) == is_table
        assert (photos / "0").read_text() == (photos / "1").read_text()
        assert [sample[0] for sample in drawn[-1]] == [sample[0] for sample in drawn[-2]]
        assert len(drawn[-1]) == 4
    assert not [*(photos / "p").iterdir()]  # the next check looks again


def test_the_summary_of_a_part_does_not_grow_with_bad_records():
    texts = [check_parts.Look(Records(n, 2), n, 2)(range(n)) for n in (200, 2000)]
    assert abs(len(texts[0]) - len(texts[1])) < 20
    found = check_parts.Found.from_json(texts[1])
    assert (found.report.counts["bad"], found.report.first["bad"][:3]) == (1000, "r1:")


def test_wrong_requests_exit_with_2_and_say_what_to_do(photos, capsys):
    assert check.main([str(photos / "nothing.jsonl")]) == 2
    assert check.main(arguments(photos, "--option", "caption_column=captoin")) == 2
    assert "did you mean caption_column='caption'?" in capsys.readouterr().err
    assert check.main([str(photos)]) == 2
    assert "prepare writes one" in capsys.readouterr().err
    assert check.main(arguments(photos, "--option", "column=a")) == 2
    assert "column" in capsys.readouterr().err
    assert check.main(arguments(photos, "--option", "nonsense")) == 2
    assert check.main([str(photos / "captions.jsonl"), "--image-folder", str(photos)]) == 3
    assert "none of 12 image files looked at" in capsys.readouterr().err
    assert check.main([str(photos / "captions.jsonl"), "--image-folder", "no\x1b\n"]) == 2
    expected = "error: no image folder no  ; set --image-folder (of finetune: images)\n"
    assert capsys.readouterr().err == expected


def test_a_word_list_is_written_that_knows_every_caption(photos):
    words = photos / "words.txt"
    assert check.main(arguments(photos, "--words", str(words), "--min-count", "2")) == 0
    tokenizer = make_tokenizer("words", 12, path=words)
    assert not (tokenizer(["one of twelve grey photos"]) == tokenizer.unk_id).any()
    assert (tokenizer(["7"]) == tokenizer.unk_id).any()  # occurs once


class Records:
    """`total` records of which every `step`-th has no caption."""

    fingerprint = "records"

    def __init__(self, total, step):
        self._total, self._step = total, step

    def __len__(self):
        return self._total

    def __getitem__(self, index):
        caption = "a red circle" if index else "red a circle"
        caption = caption if (index + 1) % self._step else "  "
        return Record(f"r{index}", np.zeros((8, 8, 3), np.uint8), [caption])


PIXELS = np.zeros((8, 8, 3), np.uint8)


def previewed(source, **options):
    words = WordTokenizer(8, words=("a", "red", "circle"))
    return preview(source, words, ImageTransform(8), **options)


def test_preview_reads_the_first_records_only():
    report = previewed(Records(1_000, 15), count=20)
    assert (report.counts["looked_at"], report.total, report.counts["bad"]) == (20, 1_000, 1)


def test_preview_stops_what_training_would_stop():
    previewed(Records(100, 100))
    with pytest.raises(
        DataError, match=r"2 of 100 records .* limit of 1 .* last is r99: no caption"
    ):
        previewed(Records(100, 50))
    with pytest.raises(DataError, match="256 records"):
        previewed(Records(100_000, 10))


def test_preview_allows_an_unlucky_beginning():
    report = previewed(Records(100_000, 50), count=256)  # 5 of 256 where 2.6 are allowed on average
    assert report.counts["bad"] == 5


def test_preview_warns_of_unknown_words_and_cut_captions():
    source = Records(10, 100)
    other = WordTokenizer(4, words=("blue",))
    text = str(inspection.inspect(source, other, ImageTransform(8)))
    assert "100% of the tokens stand for words unknown to the tokenizer" in text
    assert "100% of the captions reach the context length of 4" in text
    assert "warning" not in str(previewed(Records(10, 100)))


def test_captions_that_are_all_the_same_are_warned_of():
    def seen(*captions):
        records = [Record(str(i), PIXELS, [text]) for i, text in enumerate(captions)]
        return inspection.inspect(records)

    same, other = seen("a dog", "a dog"), seen("a cat", "a cat")
    line = "all 4 captions are 'a dog': nothing can be learned"
    assert any(line in warning for warning in same.merged(same).warnings())
    for report in (seen("a dog"), seen("a dog", "a cat"), same.merged(other)):
        assert not report.warnings()


def test_texts_padded_with_their_end_token_are_not_cut():
    tokenizer = WordTokenizer(40, words=("blue",))
    tokenizer.pad_id = tokenizer.eos_id  # as SigLIP's
    transform = ImageTransform(8)
    report = inspection.inspect(Records(10, 100), tokenizer, transform)
    assert report.counts["full_captions"] == 0
    tokenizer.context_length = 4
    report = inspection.inspect(Records(10, 100), tokenizer, transform)
    assert report.counts["full_captions"] == 10


def test_a_tokenizer_of_too_few_words_is_refused():
    report = inspection.Report(total=9)
    report.counts.update(tokens=100, unknown_tokens=50)
    report.check_tokenizer()
    report.counts["unknown_tokens"] = 51
    with pytest.raises(ValueError, match="51% of the tokens of the first captions stand for words"):
        report.check_tokenizer()
    inspection.Report(total=9).check_tokenizer()  # of a tokenizer that knows everything


def test_histogram_bars_cover_every_length_in_proportion():
    counts = collections.Counter({1: 5, 2: 10, 40: 20})
    bars = inspection.histogram(counts)
    assert len(bars) <= 10
    assert sum(int(line.split()[-1]) for line in bars) == 35
    assert [line.count("#") for line in bars] == [30, *[0] * 8, 40]
    assert bars[0].split()[0] == "1-4"


@pytest.mark.parametrize("flag", ["--count", "--threads"])
def test_a_count_of_zero_is_refused(photos, capsys, flag):
    with pytest.raises(SystemExit, match="2"):
        check.main(arguments(photos, flag, "0"))
    assert "an integer of at least 1" in capsys.readouterr().err


def test_rows_of_one_image_are_counted(photos, capsys):
    rows = [f"p{i % 12:02d}.jpg,text {i}" for i in range(30)]
    (photos / "rows.csv").write_text("\n".join(["image,caption", *rows]))
    words = [str(photos / "rows.csv"), "--image-folder", str(photos / "images")]
    assert check.main(words) == 0
    assert "30 rows of 12 images: the rows of one image are one record" in capsys.readouterr().out
    assert check.main([*words, "--option", "join_rows=False"]) == 0
    assert "30 of 30 records" in (text := capsys.readouterr().out)
    assert "30 rows of" not in text


@pytest.mark.parametrize(("rows", "warns"), [([1], True), ([], False), ([*range(12)], False)])
def test_a_few_captions_of_several_lines_are_named(photos, capsys, rows, warns):
    texts = [f'"a dog\nnumber {i} runs"' if i in rows else "a dog" for i in range(12)]
    table = [f"p{i:02d}.jpg,{text}" for i, text in enumerate(texts)]
    (photos / "rows.csv").write_text("\n".join(["image,caption", *table]))
    assert check.main([str(photos / "rows.csv"), "--image-folder", str(photos / "images")]) == 0
    warning = "1 of 12 captions have several lines, the first that of p01.jpg#2; if a quotation"
    assert (warning in capsys.readouterr().out) == warns


@pytest.mark.parametrize("marker", ["###", "None", " nan "])
def test_markers_of_missing_texts_are_counted(marker):
    negatives = [["a cat", marker], [marker], ["", "a banana"], ["nine, no. 3"]]
    rows = [Record(f"r{k}", PIXELS, [f"a dog {k}"], [each]) for k, each in enumerate(negatives)]
    (warning,) = preview(rows, None, None).warnings()
    assert f"2 captions and hard texts say nothing, first {marker.strip()!r} of r0" in warning


def test_hard_negatives_that_repeat_their_captions_are_none():
    repeated, other = (Record("r", PIXELS, ["a dog"], [[text]]) for text in ("a dog ", "a cat"))
    asked = {"negatives": HardTexts(1)}
    preview([other], None, None).check_hard_texts(asked)
    with pytest.raises(DataError, match="none of the 1 records looked at has any"):
        preview([repeated], None, None).check_hard_texts(asked)


def test_stored_texts_that_training_does_not_take_are_named():
    def unused(texts, *kinds):
        record = Record("r", PIXELS, ["a dog"], [["a cat"]], negative_kinds=[*kinds])
        return preview([record], None, None).unused({"negatives": texts, "positives": HardTexts()})

    made = HardTexts(2, {"made": 1.0}, generators={"made": generators.Reversal()})
    for kinds, words in ((), r"kinds \[\]"), ((["swap"],), r"kinds \['swap'\]"):
        (warning,) = unused(made, *kinds)
        assert re.search(rf"1 of 1 records, {words}, are not used, .* \['made'\]", warning)
    assert unused(made, ["made"]) == []
    for name in ("from_record", "from_record_in_order", "from_record:swap"):
        assert unused(HardTexts(1, {name: 1.0}), ["swap"]) == []
    assert unused(HardTexts()) == []


def test_texts_that_no_record_has_are_noticed_before_training():
    report = inspection.Report(total=9)
    report.counts.update(looked_at=9, positives=1)
    asked, made = (
        HardTexts(2),
        HardTexts(2, {"made": 1.0}, generators={"made": generators.Reversal()}),
    )
    report.check_hard_texts({"negatives": HardTexts(), "positives": asked})
    report.check_hard_texts({"negatives": made})
    with pytest.raises(DataError, match="negatives: 2 texts 'from_record' are required, but none"):
        report.check_hard_texts({"positives": asked, "negatives": asked})
    others = {"positives": HardTexts(1, {"other_captions": 1.0})}
    with pytest.raises(DataError, match="positives: 1 texts 'other_captions' are required, but"):
        report.check_hard_texts(others)
    report.counts["captions"] = 10
    report.check_hard_texts(others)
    report.kinds.update(["positives/noun", "negatives/verb"])
    report.check_hard_texts({"positives": HardTexts(1, {"from_record:noun": 1.0})})
    verbs = {"positives": HardTexts(1, {"from_record:verb": 1.0})}
    with pytest.raises(
        DataError, match=r"none of the 9 .* for 'from_record:verb'.* are \['noun'\]"
    ):
        report.check_hard_texts(verbs)
    report.total = 10
    for absent in (verbs, {"negatives": HardTexts(1, {"other": 1.0})}):
        report.counts["negatives"] = 0
        with pytest.raises(DataError, match=r"; .* more of them with config.input.preview=N$"):
            report.check_hard_texts(absent)
