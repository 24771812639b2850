"""What is special about each set of few rules, and wrong rows of all sets in JSON."""

import shutil

import numpy as np
import pytest
from PIL import Image

from tests.support import sets
from tests.support.sets import small
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


def test_bla_pairs_each_right_sentence_with_the_wrong_one(all_sets):
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


@pytest.mark.parametrize("edition", ["hub", "github"])
def test_ccneg_a_caption_stands_against_its_negation(tmp_path, edition):
    sets.ccneg.write(tmp_path, sets.ccneg.document(edition))
    cases = read("ccneg", tmp_path).cases
    assert cases[0].captions == ("a cup on a table", "a cup but not on a table")
    assert [case.images[0].name for case in cases] == [f"{n:09d}.jpg" for n in range(3)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros(2), "it asks to run numpy"),
        ({"image_paths": [], "annotations": []}, "is a list of 0 entries"),
        ({"image_paths": ["a.jpg"], "annotations": []}, "shorter"),
        ({"image_paths": ["a.jpg"], "annotations": [{"caption": "a"}]}, "'sop_data'"),
    ],
)
def test_ccneg_a_file_of_something_else_runs_no_code(tmp_path, content, message):
    sets.ccneg.write(tmp_path, content)
    with pytest.raises(DataError, match=rf"ccneg_preprocessed\.pt .*{message}"):
        read("ccneg", tmp_path)


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


def test_clevr_bind_equal_names_are_told_apart_by_subset(all_sets):
    cases = read("clevr_bind", all_sets).cases
    assert len({case.meta["record"] for case in cases}) == len({case.id for case in cases}) == 9


def test_colorswap_packed_images_are_those_of_the_folder(all_sets, tmp_path):
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


def test_colorswap_captions_belong_to_the_images_by_number(all_sets):
    case = read("colorswap", all_sets).cases[1]
    assert [each.name for each in case.images] == ["img_1_1.png", "img_1_2.png"]
    assert case.captions == ("a red hat on a blue bench 1", "a blue hat on a red bench 1")
    assert case.group == {"image_source": "dalle3", "caption_source": "human"}


def test_half_truths_a_caption_stands_against_the_half_truth(all_sets, tmp_path):
    case = read("half_truths", all_sets).cases[1]
    assert case.captions == ("a cup 1", "a cup 1 under a shelf")
    assert case.meta["positive"] == "a cup 1 on a shelf"
    assert case.group == {"subset": "coco_qwen", "detail": "relation"}
    rows = [small.HALF_TRUTHS[0], small.HALF_TRUTHS[1] | {"half_truth": None}]
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


def test_docci_has_the_test_split_and_urban1k_the_first_lines(all_sets):
    cases = read("docci", all_sets).cases
    assert [case.images[0].name for case in cases] == ["test_00001.jpg", "test_00002.jpg"]
    assert cases[0].captions == ("A photograph of 1 cups. They stand on a table.",)
    assert len(read("docci", all_sets, split="train").cases) == 1
    with pytest.raises(ValueError, match="split are some of"):
        read("docci", all_sets, split="val")
    streets = {case.images[0].name: case.captions for case in read("urban1k", all_sets).cases}
    assert streets["10.jpg"] == ("A street with 10 cars. The sky is blue.",)
    assert len(streets) == 3


def test_negrefcocog_regions_are_cut_as_pillow_cuts_them(all_sets):
    first, second = read("negrefcocog", all_sets).cases
    for case, row in zip((first, second), small.NEGREFCOCOG, strict=True):
        boxes = sorted(row["bbox_list"], key=lambda box: box != row["ref_bbox"])
        for crop, (x, y, width, height) in zip(case.images, boxes, strict=True):
            with Image.open(crop.image) as image:
                expected = np.asarray(image.convert("RGB").crop((x, y, x + width, y + height)))
            np.testing.assert_array_equal(image_ops.decode(crop), expected)
    assert first.captions == ("a cup without a handle",)


def test_ncd_squares_captions_are_made_of_the_name_of_the_image(all_sets, tmp_path):
    cases = read("ncd_squares", all_sets).cases
    assert [case.meta["record"] for case in cases] == [*small.NCD_SQUARES[:2]] * 2
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
    small.ncd_squares(tmp_path)
    (tmp_path / PUBLISHED["ncd_squares"][1].folder / "apple.jpg").touch()
    with pytest.raises(DataError, match=r"apple\.jpg is not called COLOUR_OBJECT_COLOUR_OBJECT"):
        read("ncd_squares", tmp_path)


def test_bivlc_has_each_caption_beside_its_own_image(all_sets):
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


def test_pope_the_right_answer_is_first(all_sets):
    benchmark = read("pope", all_sets)
    yes, no = benchmark.cases[:2]
    assert yes.captions == ("There is a cup in the image.", "There is no cup in the image.")
    assert no.captions == ("There is no apple in the image.", "There is an apple in the image.")
    assert no.meta["short"] == {
        "question": "Is there an apple in the image?",
        "answers": ("no", "yes"),
    }
    assert {"accuracy/answer=yes", "accuracy/subset=popular"} <= set(metrics_of(benchmark))
    assert "adversarial: 2 cases; published are 3,000" in benchmark.notes


@pytest.mark.parametrize(("name", "kind"), [("pope", "answer"), ("vsr", "label")])
def test_a_generative_model_is_asked_the_authors_question(all_sets, name, kind):
    asked = []

    def answers(images, questions, how):
        asked.extend(questions)
        return ["Yes, that is true."] * len(questions)

    scorer, benchmark = random_scorer()._replace(answers=answers), read(name, all_sets)
    metrics = evaluators.evaluate("choice", benchmark, scorer, protocol="keywords").metrics
    right, wrong = {"pope": ("yes", "no"), "vsr": ("true", "false")}[name]
    assert metrics[f"accuracy/{kind}={right}"].value == 1
    assert metrics[f"accuracy/{kind}={wrong}"].value == 0
    assert asked == [case.meta["short"]["question"] for case in benchmark.cases]


def test_vsr_a_caption_stands_against_its_negation(all_sets):
    cases = read("vsr", all_sets, subsets=("random",)).cases
    assert [case.captions for case in cases] == [
        ("The cat is behind the laptop.", "The cat is not behind the laptop."),
        ("The bowl does not contain the apple.", "The bowl contains the apple."),
        ("The bed has as a part the couch.", "The bed does not have as a part the couch."),
        ("The dogs are not near the cake.", "The dogs are near the cake."),
    ]
    assert cases[1].images[0].parent.name == "val2017"
    assert cases[1].meta["short"]["answers"] == ("false", "true")
    assert cases[1].meta["short"]["question"].endswith("false? The bowl contains the apple.")
    flat = read("vsr", all_sets, subsets=("random",), images="coco/val2017", flat=True).cases
    assert flat[1].images == cases[1].images


def test_vismin_captions_stand_beside_images_of_todays_files(tmp_path):
    sets.vismin.write(tmp_path)
    cases = read("vismin", tmp_path).cases
    assert len(cases) == 8
    for number, case in enumerate(cases):
        category, n = sets.vismin.CATEGORIES[number // 2], number % 2
        assert case.captions == (f"{category} {n}: a cup", f"{category} {n}: a pan")
        assert case.group == {"category": category}
        for k, each in enumerate(case.images):
            expected = image_ops.decode(picture_bytes(f"{category}{n}{k}"))
            np.testing.assert_array_equal(image_ops.decode(each), expected)
    (tmp_path / "vismin" / vismin.SOLUTION).write_text("Text,category\n")
    with pytest.raises(DataError, match=r"sim_solution\.csv belongs to the files of before"):
        read("vismin", tmp_path)


def test_reporting_bias_has_the_right_caption_in_lower_case(all_sets):
    cases = read("reporting_bias", all_sets).cases
    assert [case.captions[0] for case in cases] == [
        "a mug on a table", "3 cups", "a cup that is not big",
        "a lid that is not dry", "a street after rain", "a street before rain",
    ]  # fmt: skip
    assert [len(case.captions) for case in cases] == [2, 3, 2, 2, 2, 2]
    assert cases[-1].images[0].parent.name == "val_2017"
    (one,) = read("reporting_bias", all_sets, subsets=("counting",)).cases
    assert one.group == {"subset": "counting"}


def test_cases_with_an_empty_caption_are_counted_in_a_note(tmp_path):
    small.reporting_bias(tmp_path)
    path = tmp_path / "reporting_bias" / "data" / "benchmarks" / "negation.json"
    assert not any("empty" in note for note in read("reporting_bias", tmp_path).notes)
    path.write_text(path.read_text().replace("A lid that is NOT dry", " "))
    assert "1 cases with an empty caption" in read("reporting_bias", tmp_path).notes


def test_a_quotation_mark_without_its_partner_swallows_no_rows(all_sets, tmp_path):
    shutil.copytree(all_sets / "clevr_bind", tmp_path / "clevr_bind")
    path = tmp_path / "clevr_bind" / "two_object" / "gen.csv"
    head, first, *others = path.read_text().splitlines()
    assert '"' not in path.read_text()
    before, comma, cell = first.rpartition(",")
    path.write_text("\n".join([head, f'{before}{comma}"{cell}', *others]))
    with pytest.raises(DataError, match=r"gen\.csv ends inside a quotation"):
        read("clevr_bind", tmp_path)
