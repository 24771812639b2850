import pytest

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.loader import inspection
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source


@pytest.fixture
def folder(tmp_path):
    for split, number in (("train", 3), ("val", 2)):
        for name in ("n02_dog", "n01_cat"):
            for n in range(number):
                picture(tmp_path / split / name / f"{n}.JPEG")
    return tmp_path


def test_classes_are_the_sorted_folders_and_images_their_files(folder):
    source = make_source("class_folders", "val", path=folder)
    assert source.classes == ("n01_cat", "n02_dog")
    assert [source[n].id for n in range(len(source))] == [
        "n01_cat/0.JPEG",
        "n01_cat/1.JPEG",
        "n02_dog/0.JPEG",
        "n02_dog/1.JPEG",
    ]
    assert source[3].meta == {"label": 1}
    assert source[3].captions == ["a photo of a n02 dog"]
    assert len(make_source("class_folders", "all", path=folder / "train")) == 6


def test_zero_shot_prompts_come_from_clip_benchmarks_files(folder):
    write_json(folder / "names.json", {"pets": ["tabby", "poodle"], "other": []})
    write_json(folder / "templates.json", {"pets": ["a {c}.", "the {c}."]})
    options = {"source": "class_folders", "split": "val", "path": folder}
    benchmark = READERS["zeroshot"](
        **options,
        class_names=f"{folder}/names.json:pets",
        templates=f"{folder}/templates.json:pets",
    )
    assert benchmark.prompts == ["a tabby.", "the tabby.", "a poodle.", "the poodle."]
    with pytest.raises(ValueError, match=r"names.json has no 'cars'; it has pets, other"):
        READERS["zeroshot"](**options, class_names=f"{folder}/names.json:cars")


def test_folders_without_classes_or_images_are_refused(folder):
    with pytest.raises(ValueError, match=r"there is no folder .*/test; .*: train, val"):
        make_source("class_folders", "test", path=folder)
    with pytest.raises(ValueError, match="has 0 folders of classes"):
        make_source("class_folders", "all", path=folder / "train" / "n01_cat")
    (folder / "val" / "empty").mkdir()
    with pytest.raises(DataError, match="empty has no images"):
        make_source("class_folders", "val", path=folder)


@pytest.mark.parametrize("names", [("n01440764", "n01443537"), ("0", "1", "2"), ("-2", "class_1")])
def test_folders_that_are_no_words_need_class_names(tmp_path, names):
    for name in names:
        picture(tmp_path / name / "0.jpg")
    options = {"source": "class_folders", "split": "all", "path": tmp_path}
    with pytest.raises(
        ValueError, match=f"such as '{names[-1]}|{names[0]}' are no words .*class_names"
    ):
        READERS["zeroshot"](**options)
    given = READERS["zeroshot"](**options, class_names=names)
    assert given.classes == names
    source = make_source("class_folders", "all", path=tmp_path)
    (warning,) = inspection.preview(source, None, None).warnings()
    assert f"classes such as {min(names)!r} are no words" in warning


def test_training_on_folders_named_by_words_has_no_warning(folder):
    source = make_source("class_folders", "val", path=folder)
    assert inspection.preview(source, None, None).warnings() == []


def test_labels_of_a_probe_go_by_the_names_of_the_classes(folder):
    for name in ("n02_dog", "n03_cow"):
        picture(folder / "other" / name / "0.jpg")
    options = {"source": "class_folders", "path": folder}
    same = READERS["linear_probe"](**options, split="val")
    assert (same.classes, same.version.count("by_name")) == (("n01_cat", "n02_dog"), 0)
    probe = READERS["linear_probe"](**options, split="other", validation_split="other")
    assert probe.classes == ("n01_cat", "n02_dog", "n03_cow")
    for case in (*probe.cases, *probe.validation, *probe.training):
        assert probe.classes[case.meta["label"]] == case.group


def test_files_that_are_no_images_are_counted(folder, caplog):
    for name in ("n01_cat/0.AVIF", "n02_dog/7.heic", "n02_dog/.DS_Store", "n01_cat/._0.JPEG"):
        (folder / "val" / name).touch()
    source = make_source("class_folders", "val", path=folder)
    assert [source[n].id for n in range(3)] == [
        "n01_cat/0.AVIF",
        "n01_cat/0.JPEG",
        "n01_cat/1.JPEG",
    ]
    assert (
        "1 of 6 files have no suffix of an image, such as 7.heic, and are left out" in caplog.text
    )


def test_prompts_have_spaces_where_folders_have_underscores(folder):
    picture(folder / "val" / "great_white_shark" / "0.jpg")
    benchmark = READERS["zeroshot"](source="class_folders", path=folder, split="val")
    assert benchmark.prompts[0] == "a photo of a great white shark"
    assert benchmark.cases[0].group == "great white shark"
    linear = READERS["linear_probe"](
        source="class_folders", path=folder, split="val", train_split="val"
    )
    assert linear.classes[0] == "great_white_shark"


def test_folders_of_numbers_are_in_the_order_of_the_numbers(tmp_path):
    """ImageNet-V2's are 0, 1, ..., 999; as texts, 10 would be called by the name of 2."""
    for name in ("0", "2", "10"):
        picture(tmp_path / name / "0.jpg")
    options = {"source": "class_folders", "split": "all", "path": tmp_path}
    benchmark = READERS["zeroshot"](**options, class_names=["zero", "two", "ten"])
    groups = {case.meta["record"]: case.group for case in benchmark.cases}
    assert groups == {"0/0.jpg": "zero", "2/0.jpg": "two", "10/0.jpg": "ten"}
    part = make_source("class_folders", "all", path=tmp_path, classes=["10", "0"])
    assert part.classes == ("0", "10")
    with pytest.raises(ValueError, match="has no folder of the class '3'"):
        make_source("class_folders", "all", path=tmp_path, classes=["3"])


def test_a_part_of_the_classes_is_named_by_ids(folder):
    """As ImageNet-A is, whose folders are 200 of ImageNet's ids."""
    (folder / "ids.txt").write_text("n00_fish a fish\nn01_cat tabby, cat\nn02_dog\n")
    options = {"source": "class_folders", "split": "val", "path": folder}
    names = ["trout", "tabby", "poodle"]
    benchmark = READERS["zeroshot"](**options, class_names=names, class_ids=folder / "ids.txt")
    assert benchmark.classes == ("tabby", "poodle")
    with pytest.raises(ValueError, match="for a part of the classes set class_ids"):
        READERS["zeroshot"](**options, class_names=names)
    for ids, message in (
        (["n00_fish", "n01_cat", "n07_cow"], "has no 'n02_dog', a class of the source"),
        (["n01_cat", "n02_dog"], "got 2, 2 of them different, for 3 names"),
    ):
        with pytest.raises(ValueError, match=message):
            READERS["zeroshot"](**options, class_names=names, class_ids=ids)
    with pytest.raises(ValueError, match="class_ids are the source's names of class_names"):
        READERS["zeroshot"](**options, class_ids=["a"])


def test_names_in_another_order_than_the_folders_are_refused(folder):
    options = {"source": "class_folders", "split": "val", "path": folder}
    with pytest.raises(ValueError, match="class 0 of the source is 'n01_cat', which is name 1"):
        READERS["zeroshot"](**options, class_names=["N02 dog", "N01 cat"])
