"""What is special about each set of few rules, and wrong rows of all sets in JSON."""

import csv
import json
import shutil

import numpy as np
import pytest

from tests.support import sets
from tests.support.sets.files import picture_bytes, write_parquet
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, ncd_squares, spec, vismin
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError, PackedImage


def read(name, root, **options):
    return PUBLISHED[name][0](root, **options)


def metrics_of(benchmark, protocol="choice"):
    return evaluators.evaluate(protocol, benchmark, random_scorer()).metrics


def test_bla_each_right_sentence_stands_against_the_wrong_one_of_its_number(all_sets):
    first, second = read("bla", all_sets, subsets=("coordination",), count=2).cases
    assert first.captions == (
        "coordination 0: the cook in white holds a pot",
        "coordination 0: the cook in white holds a pan",
    )
    assert second.captions[0] == "coordination 0: the cook in blue holds a pan"
    assert first.group["four"] == second.group["four"]


def test_bla_four_sentences_count_as_one_beside_the_pairs(all_sets):
    metrics = metrics_of(read("bla", all_sets))
    assert (metrics["accuracy"].count, metrics["four_accuracy"].count) == (18, 9)
    assert metrics["four_accuracy"].chance == pytest.approx(1 / 4)
    assert not any("four=" in name for name in metrics)
    # the authors' first group of an image is an option
    assert len(read("bla", all_sets, first_group=True).cases) == 3 * 2 * 2


def test_clevr_bind_every_text_has_the_prompt(all_sets):
    case = read("clevr_bind", all_sets, subsets=("gen",)).cases[1]
    assert case.captions[:2] == ("An image of a gen cone 1", "An image of a gen cube 1 0")
    assert len(case.captions) == 5
    other = read("clevr_bind", all_sets, count=1, prompt="a photo of{}")
    assert other.cases[0].captions[0] == "a photo oftrain cone 0"
    assert other.version != read("clevr_bind", all_sets, count=1).version
    for wrong in ("An image", "{} and {}"):
        with pytest.raises(ValueError, match="prompt needs one"):
            read("clevr_bind", all_sets, prompt=wrong)


def test_clevr_bind_images_of_the_same_name_are_told_apart_by_their_subset(all_sets):
    cases = read("clevr_bind", all_sets).cases
    assert all(case.images[0].is_file() for case in cases)
    assert len({case.meta["record"] for case in cases}) == len({case.id for case in cases}) == 9


def test_colorswap_images_inside_parquet_files_are_those_of_the_folder(all_sets, tmp_path):
    sets.colorswap.write_packed(tmp_path)
    plain, packed = (read("colorswap", root).cases for root in (all_sets, tmp_path))
    for one, other in zip(plain, packed, strict=True):
        assert (one.id, one.captions, one.group) == (other.id, other.captions, other.group)
        assert all(isinstance(each, PackedImage) for each in other.images)
        for left, right in zip(one.images, other.images, strict=True):
            np.testing.assert_array_equal(image_ops.decode(left), image_ops.decode(right))
    write_parquet(tmp_path / "colorswap" / "test-0.parquet", [{"caption_1": "a hat"}])
    with pytest.raises(DataError, match=r"test-0\.parquet has no column 'caption_2'"):
        read("colorswap", tmp_path)


def test_colorswap_each_caption_belongs_to_the_image_of_its_number(all_sets):
    case = read("colorswap", all_sets).cases[1]
    assert [each.name for each in case.images] == ["img_1_1.png", "img_1_2.png"]
    assert case.captions == ("a red hat on a blue bench 1", "a blue hat on a red bench 1")
    assert case.group == {"image_source": "dalle3", "caption_source": "human"}


def test_half_truths_the_short_caption_stands_against_the_half_truth(all_sets, tmp_path):
    case = read("half_truths", all_sets).cases[1]
    assert case.captions == ("a cup 1", "a cup 1 under a shelf")
    assert case.meta["positive"] == "a cup 1 on a shelf"
    assert case.group == {"subset": "coco_qwen", "detail": "relation"}
    rows = [sets.half_truths.ROWS[0], sets.half_truths.ROWS[1] | {"half_truth": None}]
    write_parquet(tmp_path / "half_truths" / "coco_qwen.parquet", rows)
    with pytest.raises(DataError, match=r"coco_qwen\.parquet: case 1 has no 'half_truth'"):
        read("half_truths", tmp_path)


def test_half_truths_headlines_are_those_of_the_paper(all_sets):
    benchmark = read("half_truths", all_sets)
    result = evaluators.evaluate("triplet", benchmark, random_scorer())
    scores = [row["scores"] for row in result.per_example]  # of the short, half and full truth
    right = sum(short > half for short, half, _ in scores) / len(scores)
    ordered = sum(full > short > half for short, half, full in scores) / len(scores)
    assert result.metrics["original_accuracy"].value == pytest.approx(right)
    assert result.metrics["ordered_accuracy"].value == pytest.approx(ordered)
    assert benchmark.summary[:2] == ("original_accuracy_macro", "ordered_accuracy_macro")
    assert "original_accuracy/detail=entity" in result.metrics


def test_naturalbench_images_and_captions_of_a_row_are_a_pair(all_sets):
    case = read("naturalbench_retrieval", all_sets).cases[1]
    assert [path.name for path in case.images] == ["2.jpg", "3.jpg"]
    assert case.captions == ("A dog sits beside door 1.", "A dog stands beside door 1.")


def test_ncd_squares_captions_are_made_of_the_name_of_the_image(all_sets, tmp_path):
    cases = read("ncd_squares", all_sets).cases
    assert [case.meta["record"] for case in cases] == [*sets.ncd_squares.NAMES[:2]] * 2
    first, second = cases[1], cases[3]
    assert first.captions == (
        "A picture of a red apple and a blue corn",
        "A picture of a blue apple and a red corn",
    )
    assert second.captions == (
        "A picture of a blue corn and a red apple",
        "A picture of a red corn and a blue apple",
    )
    assert [first.group["subset"], second.group["subset"]] == [*ncd_squares.SUBSETS]
    assert "a red plum" in cases[0].captions[0]
    sets.ncd_squares.write(tmp_path)
    (tmp_path / ncd_squares.ORIGIN.folder / "apple.jpg").touch()
    with pytest.raises(DataError, match=r"apple\.jpg is not called COLOUR_OBJECT_COLOUR_OBJECT"):
        read("ncd_squares", tmp_path)


def test_bivlc_has_each_caption_beside_its_own_image_and_groups_of_types(all_sets):
    benchmark = read("bivlc", all_sets)
    first, metrics = benchmark.cases[0], metrics_of(benchmark, "pairs")
    assert first.captions == ("0 cups on a table", "a table on 0 cups")
    assert [picture.column for picture in first.images] == ["image", "negative_image"]
    assert metrics["group_score/type=replace"].count == 2
    assert metrics["group_score/subset=replace_att"].count == 1


def test_counterfactuals_of_one_caption_of_coco_are_one_cluster(all_sets):
    cases = read("coco_counterfactuals", all_sets).cases
    assert [case.meta["record"] for case in cases] == ["158", "158", "164"]


def test_pairs_of_the_published_files_have_the_published_counts(real_data):
    assert len(read("cola", real_data).cases) == 210
    found = read("coco_counterfactuals", real_data, folder=real_data / "t2v_metrics")
    assert (len(found.cases), found.notes) == (17_410, ())


def test_spec_the_correct_caption_or_image_comes_first(all_sets):
    cases = {case.id: case for case in read("spec", all_sets, subsets=("count",)).cases}
    to_text = cases["count_image_to_text_000001_cup_7_right.jpg"]
    assert [each.name for each in to_text.images] == ["right.jpg"]
    assert [text.split()[-1] for text in to_text.captions] == ["right.", "left.", "top."]
    to_image = cases["count_text_to_image_000002_cup_7_top.jpg"]
    assert to_image.captions == ("count: a cup is on the top.",)
    assert [each.name for each in to_image.images] == ["top.jpg", "left.jpg", "right.jpg"]


def test_spec_headlines_are_means_over_subsets_of_each_direction(all_sets):
    benchmark = read("spec", all_sets)
    metrics = metrics_of(benchmark)
    for direction in spec.FILES:
        parts = [metrics[f"accuracy/{direction}={subset}"].value for subset in spec.SUBSETS]
        assert metrics[f"accuracy_{direction}"].value == pytest.approx(sum(parts) / 6)
    assert benchmark.summary == ("accuracy_image_to_text", "accuracy_text_to_image")


def test_sugarcrepe_pp_the_second_caption_is_the_hard_positive(all_sets):
    benchmark = read("sugarcrepe_pp", all_sets)
    case = benchmark.cases[1]
    assert case.captions[0] == "A dog replace_att chases a cat 2."
    assert case.captions[1] == "A cat replace_att chases a dog 2."
    assert case.meta["positive"] == "A cat replace_att is chased by a dog 2."
    assert case.id == "replace_att_000001_000000000002.jpg"
    assert benchmark.summary[:2] == ("augmented_accuracy_macro", "text_accuracy_macro")
    assert "swap_obj: 2 cases; published are 245" in benchmark.notes


def test_vismin_captions_that_the_solution_exchanges_stand_beside_their_images(all_sets):
    cases = read("vismin", all_sets).cases
    assert len(cases) == 8
    for number, case in enumerate(cases):
        category, n = sets.vismin.CATEGORIES[number // 2], number % 2
        assert case.captions == (f"{category} {n}: a cup", f"{category} {n}: a pan")
        assert case.group == {"category": category}
        for k, each in enumerate(case.images):
            expected = image_ops.decode(picture_bytes(f"{category}{n}{k}"))
            np.testing.assert_array_equal(image_ops.decode(each), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-1], r"sim_solution\.csv has 7 rows and \*\.parquet 8"),
        (lambda rows: rows[::-1], r"sim_solution\.csv: row 0 .* category 'counting'"),
        (lambda rows: [rows[0] | {"Text": "="}, *rows[1:]], r"sim_solution\.csv: row 0 is '='"),
    ],
)
def test_vismin_a_solution_of_other_rows_is_refused(tmp_path, change, message):
    sets.vismin.write(tmp_path)
    with (tmp_path / "vismin" / vismin.SOLUTION).open(newline="") as file:
        rows = list(csv.DictReader(file))
    sets.files.write_table(tmp_path / "vismin" / vismin.SOLUTION, change(rows))
    with pytest.raises(DataError, match=message):
        read("vismin", tmp_path)


BLA = ("bla", "BLA_Benchmark/annotations/active_passive_captions.json")
COLA = ("cola", "cola/COLA_multiobjects_matching_benchmark.json")
EQBEN = ("eqben", "eqben_vllm/all_select.json")
SPATIAL = ("coco_spatial_one", "whatsup/coco_qa_one_obj.json")
SPEC = ("spec", "spec/count/image2text.json")
SUGARCREPE = ("sugarcrepe_pp", "sugarcrepe_pp/swap_obj.json")
VALSE = ("valse", "valse/existence.json")
VL_CHECKLIST = ("vl_checklist", "vl_checklist/Relation/vg/action.json")
WHATSUP = ("whatsup_a", "whatsup/controlled_images_dataset.json")
WRONG_ROWS = [  # set and file, change of its second row or another row in its place, message
    (*BLA, {"caption_group": {"True1": "a"}}, "case 1 needs a list of"),
    (*BLA, {"caption_group": [{"True1": "a", "False1": "b"}]}, "case 1 needs a list of"),
    (*BLA, {"caption_group": ["a"]}, "case 1 needs a list of"),
    (*COLA, ["a.jpg", "x", "b.jpg"], "case 1 is not a list of"),
    (*COLA, "row", "case 1 is not a list of"),
    (*COLA, ["a.jpg", "x", "b.jpg", None], "case 1 has no 'caption_1'"),
    (*EQBEN, {"image0": "coco/1.png"}, "case 1: images begin with one of .*; got 'coco/1.png'"),
    (*EQBEN, {"caption1": None}, "case 1 has no 'caption1'"),
    ("naturalbench_retrieval", "NaturalBench-Retrieval/metadata.json", {"image_1": None},
     "case 1 has no 'image_1'"),
    (*SPATIAL, [7, "A photo of a lamp on the left"], "case 1 is not a list of image id, correct"),
    (*SPATIAL, [7, "A photo of a lamp somewhere", "B"], "case 1 does not end in one of .*'left'"),
    (*SPEC, {"keys": ["a", "b"], "label": 2}, "case 1 needs two or more texts"),
    (*SPEC, {"label": "0"}, "case 1 needs two or more texts"),
    (*SPEC, {"keys": ["a"], "label": 0}, "case 1 needs two or more texts"),
    (*SPEC, {"keys": "ab", "label": 0}, "case 1, 'keys': a list of texts is needed; got 'ab'"),
    (*SUGARCREPE, {"caption2": None}, "case 1 has no 'caption2'"),
    (*SUGARCREPE, {"caption": 7}, "case 1, 'caption': a text is needed; got 7"),
    (*SUGARCREPE, {"filename": 7}, "case 1, 'filename': a text is needed; got 7"),
    (*SUGARCREPE, {"filename": "../../a.jpg"}, "case 1, 'filename': a file name that leads out"),
    (*SUGARCREPE, {"filename": "/etc/passwd"}, "case 1, 'filename': a file name that leads out"),
    (*SUGARCREPE, {"filename": "a" * 300}, "case 1, 'filename': a name that no file can have"),
    (*SUGARCREPE, {"caption": "\ud800"}, "case 1, 'caption': a text that is not Unicode"),
    (*SUGARCREPE, {"caption": "a" * 10**6}, "case 1, 'caption': a text of 1,000,000 characters"),
    (*VALSE, {"mturk": {"foil": 1}}, "case 'existence:test_2' has no number of votes"),
    (*VALSE, {"dataset": "flickr"}, "case 'existence:test_2' is of the data set 'flickr'"),
    (*VALSE, {"foil": None}, "case 1 has no 'foil'"),
    (*VL_CHECKLIST, ["VG_100K/7.jpg", {"POS": [], "NEG": ["b"]}], "case 1 is not"),
    (*VL_CHECKLIST, {"image": 1}, "case 1 is not"),
    (*VL_CHECKLIST, [7, {}], "case 1 is not"),
    (*WHATSUP, {"image_path": "data/mug_beside_plate.jpeg"}, "case 1 is of no image .*mug_be"),
    (*WHATSUP, {"caption_options": ["a", "b"]}, "case 1 has no four captions"),
    (*WHATSUP, {"caption_options": ["on", "under", "left", "near"]}, "case 1, .*must say 'right'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "file", "change", "message"), WRONG_ROWS)
def test_a_wrong_row_is_named_by_file_and_case(all_sets, tmp_path, name, file, change, message):
    folder = PUBLISHED[name][1].folder
    shutil.copytree(all_sets / folder, tmp_path / folder)
    document = json.loads((tmp_path / file).read_text())
    key = list(document)[1] if isinstance(document, dict) else 1
    is_part = isinstance(document[key], dict) and isinstance(change, dict)
    document[key] = document[key] | change if is_part else change
    (tmp_path / file).write_text(json.dumps(document))
    with pytest.raises(DataError, match=f"{file}: {message}"):
        read(name, tmp_path)


def test_a_quotation_mark_without_its_partner_swallows_no_rows(all_sets, tmp_path):
    shutil.copytree(all_sets / "clevr_bind", tmp_path / "clevr_bind")
    path = tmp_path / "clevr_bind" / "two_object" / "gen.csv"
    head, first, *others = path.read_text().splitlines()
    assert '"' not in path.read_text()
    before, comma, cell = first.rpartition(",")
    path.write_text("\n".join([head, f'{before}{comma}"{cell}', *others]))
    with pytest.raises(DataError, match=r"gen\.csv ends inside a quotation"):
        read("clevr_bind", tmp_path)
