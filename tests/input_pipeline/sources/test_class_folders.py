import pytest

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.loader import inspection
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import image_list, make_source, prompt_texts


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
    names = [f"{each}/{n}.JPEG" for each in source.classes for n in (0, 1)]
    assert [source[n].id for n in range(len(source))] == names
    assert source[3].meta == {"label": 1}
    assert source[3].captions == ["a photo of a n02 dog"]
    assert inspection.preview(source, None, None).warnings() == []
    assert len(make_source("class_folders", "all", path=folder / "train")) == 6


def test_another_image_under_the_same_name_is_another_set(folder):
    options = {"source": "class_folders", "split": "val", "path": folder, "templates": "a {}"}
    first = READERS["zeroshot"](**options).version
    assert READERS["zeroshot"](**options).version == first
    picture(folder / "other.jpg").replace(folder / "val/n01_cat/0.JPEG")
    assert READERS["zeroshot"](**options).version != first


def test_zero_shot_prompts_come_from_clip_benchmarks_files(folder):
    write_json(folder / "names.json", {"pets": ["tabby", "poodle"], "other": []})
    write_json(folder / "templates.json", {"pets": ["a {c}.", "the {c}."]})
    options = {"source": "class_folders", "split": "val", "path": folder}
    files = {"class_names": "names.json:pets", "templates": "templates.json:pets"}
    files = {option: f"{folder}/{file}" for option, file in files.items()}
    benchmark = READERS["zeroshot"](**options, **files)
    assert benchmark.prompts == ["a tabby.", "the tabby.", "a poodle.", "the poodle."]
    with pytest.raises(ValueError, match=r"names.json has no 'cars'; it has pets, other"):
        READERS["zeroshot"](**options, class_names=f"{folder}/names.json:cars")


def test_folders_without_classes_or_images_are_refused(folder):
    def read(split, path=folder, **options):
        make_source("class_folders", split, path=path, **options)

    with pytest.raises(ValueError, match=r"there is no folder .*/test; .*: train, val"):
        read("test")
    with pytest.raises(ValueError, match="has 0 folders of classes"):
        read("all", folder / "train" / "n01_cat")
    with pytest.raises(ValueError, match=r"has splits, no classes; .* \('train', 'val'\)"):
        read("all")
    for templates in (["a photo"], ["a {} and a {}"], "a photo of {class}"):
        with pytest.raises(ValueError, match="templates"):
            read("val", templates=templates)
    (folder / "val" / "empty").mkdir()
    with pytest.raises(DataError, match="empty has no images"):
        read("val")


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


def test_labels_of_a_probe_go_by_the_names_of_the_classes(folder):
    for name in ("n02_dog", "n03_cow"):
        picture(folder / "other" / name / "0.jpg")
    options = {"source": "class_folders", "path": folder}
    same = READERS["linear_probe"](**options, split="val")
    assert same.classes == ("n01_cat", "n02_dog")
    probe = READERS["linear_probe"](**options, split="other", validation_split="other")
    assert probe.classes == ("n01_cat", "n02_dog", "n03_cow")
    for case in (*probe.cases, *probe.validation, *probe.training):
        assert probe.classes[case.meta["label"]] == case.group


def test_files_that_are_no_images_are_counted(folder, caplog):
    for name in ("n01_cat/0.AVIF", "n02_dog/7.heic", "n02_dog/.DS_Store", "n01_cat/._0.JPEG"):
        (folder / "val" / name).touch()
    source = make_source("class_folders", "val", path=folder)
    cats = ["n01_cat/0.AVIF", "n01_cat/0.JPEG", "n01_cat/1.JPEG"]
    assert [source[n].id for n in range(3)] == cats
    assert "1 of 6 files have no suffix of an image, such as 7.heic, and are left" in caplog.text


def test_nested_folders_are_read_as_torchvision_reads_them(folder):
    names = ("b/1.JPEG", "b-c/0.jpg", "b/a/0.jpg", ".cache/0.jpg", "._0.jpg", "b/9.txt")
    for name in names:
        picture(folder / "val" / "n02_dog" / name)
    (folder / "val" / "n02_dog" / "b" / "up").symlink_to(folder / "val" / "n02_dog")
    (folder / "val" / ".cache").mkdir()
    source = make_source("class_folders", "val", path=folder)
    dogs = ["0.JPEG", "1.JPEG", "b/1.JPEG", "b-c/0.jpg", "b/a/0.jpg"]
    assert [source[n].id for n in range(2, len(source))] == [f"n02_dog/{name}" for name in dogs]
    assert source[6].image.is_file()
    names = image_list.read(folder / "val").names
    assert (len(names), names) == (7, sorted(names))


def test_prompts_have_spaces_where_folders_have_underscores(folder):
    picture(folder / "val" / "great_white_shark" / "0.jpg")
    options = {"source": "class_folders", "path": folder, "split": "val"}
    benchmark = READERS["zeroshot"](**options)
    assert benchmark.prompts[0] == "a photo of a great white shark"
    assert benchmark.cases[0].group == "great white shark"
    linear = READERS["linear_probe"](**options, train_split="val")
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


def named(tmp_path, text, known, name="names.txt"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return prompt_texts.class_names(tmp_path / name, known)


IDS = ("n01440764", "n01443537", "n02119789")
FISH = ("tench", "gold fish", "kit fox")
BY_ID = {  # the names of IDS in another order
    "spaces": "n02119789 kit fox\nn01440764 tench\nn01443537 gold fish\n",
    "map_clsloc": "n02119789 1 kit_fox\nn01440764 2 tench\nn01443537 3 gold_fish",
    "tabs and a mark": "\ufeffn02119789\tkit fox\r\nn01440764\ttench\r\nn01443537\tgold fish",
    "commas": "n02119789,kit fox\nn01440764, tench\nn01443537,gold fish",
    "more": "n09999999 cat\nn02119789 kit fox\nn01440764 tench\nn01443537 gold fish",
    "dict": "x = {'n02119789': 'kit fox',\n 'n01440764': 'tench',\n\n 'n01443537': 'gold fish'}",
    "lines of a dict": "'n02119789': 'kit fox',\n'n01440764': 'tench',\n'n01443537': 'gold fish',",
    "numbers": "2: kit fox\n0: tench\n1: gold_fish",
    "numbers and spaces": "1 gold fish\n2 kit fox\n0 tench",
    "numbers and points": "1. gold fish\n2. kit fox\n0. tench",
    "dict of numbers": "{2: 'kit fox', 0: 'tench',\n 1: 'gold fish'}",
    "quoted": "    'tench',\n    'gold fish'\n    'kit fox',\n",
    "list": "classes = ['tench', 'gold fish',\n    'kit fox']",
    "class_index.json": '{"0": ["n02119789", "kit_fox"], "1": ["n01440764", "tench"], '
    '"2": ["n01443537", "gold_fish"]}',
    "numbers.json": '{"2": "kit fox", "0": "tench", "1": "gold fish"}',
}


@pytest.mark.parametrize("form", BY_ID)
def test_names_go_to_the_classes_whose_ids_or_numbers_they_have(tmp_path, form):
    file = form if form.endswith(".json") else "names.txt"
    assert named(tmp_path, BY_ID[form], IDS, file) == FISH


@pytest.mark.parametrize(
    ("known", "text", "expected"),
    [
        (("0", "2", "10"), "10: ten\n0: zero\n2: two", ("zero", "two", "ten")),
        (("class_1", "class_2"), "class_2 cat\nclass_1 dog", ("dog", "cat")),
        (("dog", "cat"), "cat: a tabby\ndog: a poodle", ("a poodle", "a tabby")),
        (("dog", "cat"), "dog lying\ncat lying", ("dog lying", "cat lying")),
        (("a", "b"), "2012 Audi\nBMW", ("2012 Audi", "BMW")),
        (("a", "b"), "alpha\nlambda\u200b", ("alpha", "lambda")),
        (("a", "b"), "digit 0\ndigit 1", ("digit 0", "digit 1")),
        (("a", "b", "c"), "['near', '', 'far']", ("near", "", "far")),  # CLIP_benchmark's clevr
        ((), "1: one\n0: zero", ("zero", "one")),
        (IDS[:2], "\n".join(IDS[:2]), IDS[:2]),
    ],
)
def test_first_words_that_are_no_ids_stay_in_the_names(tmp_path, known, text, expected):
    assert named(tmp_path, text, known) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n01440764 a\nn01443537 b\nkit fox", "'kit fox' does not begin with an id or number and"),
        ("n01440764 a\nn01443537 b\nn02119789", "'n02119789' does not begin with an id or number"),
        ("a n01440764\nb n01443537\nc n02119789", "'a n01440764' does not begin with an id"),
        ("n01440764 a\nn01440764 b\nn02119789 c", "'n01440764' in front of two names"),
        ("n01440764 a\nn01440765 b\nn02119789 c", "has no 'n01443537', a class of the source"),
        ("1 a\n2 b\n3 c", "numbers of 3 classes are 0 to 2, each once; got 1 to 3"),
        ("0: a\n1: b\nc", "'c' does not begin with an id or number and a name"),
        ("N01440764 a\nN01443537 b\nN02119789 c", "has no 'n01440764', a class of the source"),
        ("b,1\na,0\nc,2", "'b,1' ends in a number; write it in front"),
        ("a 1\nb 2\nc 3", "'a 1' ends in a number"),
        ("a,\nb,\nc", "'a,' is quoted or code"),
        ("a\n\u200b\nc", r"line 2 of .*names\.txt is blank"),
        ("a\tb\nb\tc\nd\te", "has a tab; a line is one name"),
        ("a\n\nb\nc", r"line 2 of .*names\.txt is blank"),
        ("'a',\nb\n'c',", r"names\.txt, line 2, is no code, unlike others: 'b'"),
        ("['a',\n  b.c, 'd']", r"names\.txt, line 2, is code that is not understood \(b\.c\)"),
        ("{0: 'a',\n 0: 'b'}", "line 1, is code that is not understood"),
    ],
)
def test_ids_and_code_that_do_not_tell_the_classes_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        named(tmp_path, text, IDS)
    assert "names.txt" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("    lambda c: f'a {c}.',\n    lambda c: f\"it's a {c}.\",\n", ("a {}.", "it's a {}.")),
        ("    'a {}.',\n    'the {c}.',", ("a {}.", "the {}.")),
        ("'a {}.'\n'the {}.'", ("a {}.", "the {}.")),
        ("x = [\n  # more\n  'a {}.',\n\n  f'the {name}.'\n]", ("a {}.", "the {}.")),
        ("{} here\n\n({}) there", ("{} here", "({}) there")),
    ],
)
def test_templates_as_python_code_are_their_texts(tmp_path, text, expected):
    (tmp_path / "templates.txt").write_text(text)
    assert prompt_texts.templates(tmp_path / "templates.txt") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("'a {}',\nlambda c: f'a {c.lower()}',", r"line 2, is code that .* \(\{c\.lower\(\)\}\)"),
        ("'a {}',\nlambda c: 'a {}'.format(c),", "line 2, is code that is not understood"),
        ("a {}\n'b {}',", "line 1, is no code, unlike others: 'a {}'"),
        ("'a {} {}',", "have {} once"),
        ("1. a {}", "no number in front"),
        ("‘a {}’", "is quoted or code"),
    ],
)
def test_code_that_is_no_template_is_refused_by_its_line(tmp_path, text, message):
    (tmp_path / "templates.txt").write_text(text)
    with pytest.raises(ValueError, match=rf"templates\.txt.*{message}"):
        prompt_texts.templates(tmp_path / "templates.txt")
    for option in (
        "lambda c: f'a {c} {}',",
        ["lambda c: f'a {c}'"],
        ["- a {}"],
        ["'a {}'.format(c)"],
    ):
        with pytest.raises(ValueError, match="code; write the text alone"):
            prompt_texts.templates(option)
