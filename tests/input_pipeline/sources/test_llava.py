"""LLaVA's files: one or several, which answers are captions, what is left out."""

import json
import pickle

import pytest
from PIL import Image

from tests.support import miniature
from tests.support.miniature import llava
from vlc_jax.input_pipeline import batch
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import Conversation, DataError
from vlc_jax.input_pipeline.sources import make_source

LCS, MIX = "blip_laion_cc_sbu_558k.json", "llava_v1_5_mix665k.json"


@pytest.fixture
def folder(tmp_path):
    miniature.write_coco(tmp_path / "coco")
    miniature.write_llava(tmp_path / "llava")
    return tmp_path / "llava"


def training(folder, *names, **options):
    files = "+".join(str(folder / name) for name in names or (LCS, MIX))
    folders = f"{folder / 'images'}+{folder / 'data'}"
    return make_source("llava", "train", annotations=files, images=folders, **options)


def every(source):
    return [source[index] for index in range(len(source))]


def test_the_caption_is_the_first_answer_beside_the_conversation(folder, caplog):
    source = llava(folder.parent)
    assert "1 of 6 entries have no image" in caplog.text
    ids = [record.id for record in every(source)]
    assert ids[1:3] == ["000000000001.jpg#2", "000000000003.jpg#4"]
    record = source[2]
    assert record.captions == miniature.captions(3)[:1]
    assert record.meta["id"] == "000000000003"
    assert [turn["from"] for turn in record.meta["conversations"]] == ["human", "gpt"] * 2


def test_answers_become_captions_as_asked(folder):
    lamp = "The lamp of picture 5."
    expected = {"first": [lamp], "each": [lamp, "Yes", "B"], "joined": [f"{lamp} Yes B"]}
    for answers, captions in expected.items():
        record = training(folder, MIX, answers=answers)[1]
        assert record.captions == captions
        assert "<image>" not in " ".join(record.captions)
    with pytest.raises(ValueError, match=r"unknown kind of answers 'all'.*first"):
        training(folder, answers="all")


def test_the_turn_before_an_answer_is_its_question(folder):
    record = training(folder, MIX, answers="each")[1]
    turns = record.meta["conversations"]
    asked = [turn["value"].replace("<image>", "").strip() for turn in turns[::2]]
    assert record.questions == asked
    assert len(asked) == len(record.captions) == 3
    assert training(folder, MIX)[1].questions == asked[:1]
    for answers in ("joined", "conversation"):
        assert training(folder, MIX, answers=answers)[1].questions == ()


def test_a_conversation_is_one_text_of_questions_and_answers(folder):
    record = training(folder, MIX, answers="conversation")[1]
    pairs = record.captions[0].turns
    turns = [turn["value"] for turn in record.meta["conversations"]]
    assert "<image>" in turns[0]
    assert len(pairs) == 3
    expected = [turns[0].replace("<image>", "").strip(), *turns[1:]]
    assert [text for pair in pairs for text in pair] == expected


@pytest.mark.parametrize(
    ("turns", "error"),
    [
        ([{"from": "human", "value": "a"}], "take turns"),
        ([{"from": "gpt", "value": "a"}, {"from": "human", "value": "b"}], "take turns"),
        ([{"from": "human", "value": "a"}, {"from": "gpt", "value": 3}], "is a text"),
    ],
)
def test_a_conversation_whose_turns_are_out_of_order_is_refused(folder, turns, error):
    path = folder / "broken.json"
    image = json.loads((folder / MIX).read_text())[1]["image"]
    path.write_text(json.dumps([{"id": "1", "image": image, "conversations": turns}]))
    with pytest.raises(DataError, match=error):
        training(folder, "broken.json", answers="conversation")[0]


def test_several_files_are_one_source_in_their_order(folder, caplog):
    source = training(folder, answers="each")
    assert "2 of 6 entries have no image" in caplog.text
    records = every(source)
    assert len(records) == 8
    assert len({record.id for record in records}) == 8
    for number, record in enumerate(records):
        assert f"picture {number}" in record.captions[0]
        assert abs(int(image_ops.decode(record.image)[0, 0, 0]) - 10 * number) < 12
    assert every(pickle.loads(pickle.dumps(source))) == records
    assert set(source.digests) == {str(folder / LCS), str(folder / MIX)}
    assert every(training(folder, LCS)) == every(training(folder, answers="first"))[:4]


def write_pairs(folder):
    """Two entries in the form of Img-Diff's object replacement; the boxes are in its images."""
    entries, pictures = [], folder / "filtered_new_edit_data"
    pictures.mkdir()
    for number in (1, 2):
        path = f"./filtered_new_edit_data/{number}_0"
        for side, size in (("0", (40, 30)), ("1", (20, 10))):
            color = (100 * number, 50, 200 * int(side))
            Image.new("RGB", size, color).save(folder / f"{path}_{side}.jpg", quality=95)
        entry = {"bbox": "[0.10, 0.20, 0.30, 0.40]", "captions1": "a", "captions2": "b"}
        turns = miniature.talk("What differs?", f"The left one has {number}.")
        entries.append({"conversations": turns, **entry, "path": path})
    (folder / "pairs.json").write_text(json.dumps(entries))


def test_a_pair_of_img_diff_is_one_image_with_a_black_bar(folder):
    write_pairs(folder)
    folders = f"{folder / 'images'}+{folder / 'data'}+{folder}"
    for text_only in (False, True):  # never a conversation without an image
        files = f"{folder / MIX}+{folder / 'pairs.json'}"
        more = {"answers": "conversation", "text_only": text_only}
        source = make_source("llava", "train", annotations=files, images=folders, **more)
        record = source[len(source) - 1]
        assert record.captions == [Conversation((("What differs?", "The left one has 2."),))]
        pixels = image_ops.decode(record.image).astype(int)
        assert pixels.shape == (30, 40 + 20 + 40, 3)
        for columns, color in ((slice(40), (200, 50, 0)), (slice(60, None), (200, 50, 200))):
            assert abs(pixels[:, columns] - color).max() < 9
        assert not pixels[:, 40:60].any()
    assert len({record.id for record in every(source)}) == len(source)
    alone = make_source("llava", "train", annotations=folder / "pairs.json", images=folder)
    assert alone[0].captions == ["The left one has 1."]
    (folder / "filtered_new_edit_data/2_0_1.jpg").unlink()
    with pytest.raises(DataError, match=r"2_0_1\.jpg"):
        alone[1]


def test_ids_differ_where_files_name_the_same_images(folder):
    ids = [record.id for record in every(training(folder, LCS, LCS))]
    assert ids[0] == "00000/000001000.jpg#1"
    assert ids[4] == "00000/000001000.jpg#5"
    assert len(set(ids)) == 8
    # which a training batch tells by its image's name
    images = [batch.image_id(record) for record in every(training(folder, LCS, LCS))]
    assert images[:4] == images[4:]
    assert len({*images}) == 4


def test_fingerprints_follow_files_their_order_and_the_answers(folder):
    found = [
        training(folder, LCS),
        training(folder, MIX),
        training(folder, LCS, MIX),
        training(folder, MIX, LCS),
        training(folder, answers="each"),
        training(folder, answers="joined"),
    ]
    assert len({source.fingerprint for source in found}) == len(found)
    assert training(folder).fingerprint == training(folder, LCS, MIX).fingerprint


def test_damage_is_named_by_its_own_file_and_row(folder):
    entries = json.loads((folder / MIX).read_text())
    entries[3]["conversations"] = entries[3]["conversations"][:1]
    entries[4]["conversations"] = "none"
    (folder / MIX).write_text(json.dumps(entries))
    source = training(folder)
    with pytest.raises(DataError, match=rf"row 4 of .*{MIX} has no answer .* from: \['human'\]"):
        source[6]
    with pytest.raises(DataError, match=rf"row 5 of .*{MIX}: 'conversations' is a list"):
        source[7]
    assert source[5].captions == ["The lamp of picture 5."]


def test_a_second_file_or_folder_that_is_not_there_is_named(folder):
    with pytest.raises(ValueError, match=r"nothing\.json is no file; annotations is"):
        training(folder, LCS, "nothing.json")
    with pytest.raises(ValueError, match=r"no image folder .*nowhere"):
        make_source(
            "llava",
            "train",
            annotations=folder / LCS,
            images=f"{folder / 'images'}+{folder / 'nowhere'}",
        )


def test_a_name_with_a_plus_is_one_file(folder):
    (folder / "a+b.json").write_bytes((folder / LCS).read_bytes())
    assert len(training(folder, "a+b.json")) == 4


def test_conversations_without_an_image_are_texts_alone(folder, caplog):
    source = training(folder, MIX, answers="conversation", text_only=True)
    assert source.has_text_only
    assert "no image" not in caplog.text
    records = every(source)
    assert [record.id for record in records if record.image is None] == [
        *("text_only#3", "text_only#6")
    ]
    verse = (("Write a verse.", "Rain, rain."),)
    assert records[2].captions == [Conversation(verse, has_image=False)]
    with_image = [record for record in records if record.image is not None]
    assert with_image[0] == training(folder, MIX, answers="conversation")[0]
    assert [r.captions for r in with_image] == [
        record.captions for record in every(training(folder, MIX, answers="conversation"))
    ]
    each = training(folder, MIX, answers="each", text_only=True)[2]
    assert (each.questions, each.captions) == (["Write a verse."], ["Rain, rain."])
    assert source.find("text_only#6").captions == records[5].captions
    assert source.fingerprint != training(folder, MIX, answers="conversation").fingerprint
    assert not training(folder, LCS, text_only=True).has_text_only
    assert training(folder, LCS, text_only=True).fingerprint == training(folder, LCS).fingerprint
    assert training(folder, text_only=True).has_text_only
    assert every(pickle.loads(pickle.dumps(source))) == records


def test_an_entry_without_an_image_is_kept_as_it_is(folder):
    turns = [
        {"from": "gpt", "value": "Hello!"},  # a first turn that is left out, as LLaVA's code does
        *miniature.talk(" What is <image> in HTML? ", "No tag."),
    ]
    (folder / "talk.json").write_text(json.dumps([{"id": 1, "conversations": turns}] * 9))
    source = training(folder, "talk.json", answers="conversation", text_only=True)
    turns = ((" What is <image> in HTML? ", "No tag."),)
    assert source[8].captions == [Conversation(turns, has_image=False)]
    with pytest.raises(ValueError, match="'text_only' is True or False; got 'False'"):
        training(folder, text_only="False")
    options = {"annotations": folder / "talk.json", "images": folder / "images", "text_only": True}
    with pytest.raises(ValueError, match="records of a benchmark have an image"):
        READERS["retrieval"]("train", source="llava", **options)
