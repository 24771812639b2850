"""Wrong rows of all sets whose files are JSON, JSON lines or CSV are named by file and case."""

import csv
import io
import itertools
import json
import shutil
from pathlib import Path

import pytest

from vlc_jax.input_pipeline.benchmarks import PUBLISHED
from vlc_jax.input_pipeline.record import DataError

BLA = ("bla", "BLA_Benchmark/annotations/active_passive_captions.json")
COLA = ("cola", "cola/COLA_multiobjects_matching_benchmark.json")
CREPE = (
    "crepe_productivity",
    "crepe/prod_hard_negatives/swap/prod_vg_hard_negs_swap_complexity_4.csv",
)
EQBEN = ("eqben", "eqben_vllm/all_select.json")
EQBEN_FULL = ("eqben_full", "eqben_full/ann_json_finegrained_random.json")
IMAGECODE = ("imagecode", "imagecode/valid_data.json")
RETRIEVAL = (
    "negbench_retrieval",
    "negbench/images/COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv",
)
NEGBENCH = ("negbench", "negbench/images/COCO_val_mcq_llama3.1_rephrased.csv")
NEGREFCOCOG = ("negrefcocog", "negrefcocog/NegRefCOCOg.json")
POPE = ("pope", "pope/coco_pope_random.json")
REPORTING = ("reporting_bias", "reporting_bias/data/benchmarks/negation.json")
SPATIAL = ("coco_spatial_one", "whatsup/coco_qa_one_obj.json")
SPEC = ("spec", "spec/count/image2text.json")
SUGARCREPE = ("sugarcrepe_pp", "sugarcrepe_pp/swap_obj.json")
VSR = ("vsr", "vsr/data/splits/random/test.jsonl")
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
    (*NEGREFCOCOG, {"ref_bbox": [1, 2, 3]}, "case 1, 'ref_bbox': a region is a list of left"),
    (*NEGREFCOCOG, {"bbox_list": 7}, "case 1, 'bbox_list': a region is a list of left"),
    (*NEGREFCOCOG, {"bbox_list": [[0, 0, 4, 3]]}, "case 1: 'bbox_list' has 'ref_bbox' and"),
    (*NEGREFCOCOG, {"ref_bbox": [0, 0, "x", 3], "bbox_list": [[0, 0, "x", 3], [0, 0, 4, 3]]},
     "case 1: 'width' is a number; got 'x'"),
    (*REPORTING, {"gold_index": 2}, "case 1: gold_index is the place of .*; got 2 of 2"),
    (*REPORTING, {"gold_index": True}, "case 1: gold_index is the place of .*; got True of 2"),
    (*REPORTING, {"caption_options": ["a"]}, "case 1: gold_index is the place of .*; got 0 of 1"),
    (*SPATIAL, [7, "A photo of a lamp on the left"], "case 1 is not a list of image id, correct"),
    (*SPATIAL, [7, "A photo of a lamp somewhere", "B"], "case 1 does not end in one of .*'left'"),
    (*SPEC, {"keys": ["a", "b"], "label": 2}, "case 1: label is the place"),
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
    (*CREPE, {"hard_negs": "[]"}, "case 1 needs a list of texts in 'hard_negs'"),
    (*CREPE, {"hard_negs": "a pan"}, "case 1 needs a list of texts in 'hard_negs'"),
    (*CREPE, {"width": "nan"}, "case 1: 'width' is a number; got 'nan'"),
    (*CREPE, {"height": None}, "case 1 has no 'height'"),
    ("docci", "docci/docci_descriptions.jsonlines", {"split": "val"},
     "case 1: split is one of test, .*; got 'val'"),
    (*EQBEN_FULL, {"caption": "a cat"}, "case 1 contradicts another row of eqbensd 6"),
    (*EQBEN_FULL, {"private_info": {"dataset": "eqbensd", "name": "c2i0", "sample_cnt": 6}},
     "case 1: "),
    (*EQBEN_FULL, {"private_info": {"dataset": "coco", "name": "c1i0", "sample_cnt": 6}},
     "case 1: "),
    (*EQBEN_FULL, {"private_info": "c1i0"}, "case 1: 'private_info' has dataset"),
    (*EQBEN_FULL, {"private_info": {"dataset": "eqbensd", "name": "c1i0", "sample_cnt": 7}},
     "eqbensd 6 has no c1i0"),
    (*IMAGECODE, {"10": "a cup"}, "set 'MSR.*' needs an object, index of an image from 0 to 9"),
    (*IMAGECODE, ["a cup"], "set 'MSR.*' needs an object"),
    (*IMAGECODE, {"1": 5}, "set 'MSR.*', image 1 has no text; got 5"),
    (*NEGBENCH, {"correct_answer": "b"}, "case 1: correct_answer is the place of .*; got 'b'"),
    (*NEGBENCH, {"correct_answer": 4}, "case 1: correct_answer is the place of .*; got '4'"),
    (*RETRIEVAL, {"captions": "a cup"},
     "case 1, 'captions': a list of texts is needed; got 'a cup'"),
    (*POPE, {"label": "maybe"}, r"case 1 asks .*, 'maybe'"),
    (*POPE, {"text": "Is it raining?"}, "case 1 asks 'Is there a ... in the image.'"),
    ("svo_probes", "svo_probes/svo_probes.csv", {"verb_neg": "yes"},
     "case 1: verb_neg is True or False"),
    (*VSR, {"label": 2}, "case 1: label is 0 or 1; got 2"),
    (*VSR, {"label": True}, "case 1: label is 0 or 1; got True"),
    (*VSR, {"caption": "The cat sat."}, "case 1 has one of the verbs is, .*'The cat sat"),
    (*VSR, {"image_link": "x/test2017/7.jpg"}, "case 1: image_link is the address of"),
    ("winoground", "winoground/data/examples.jsonl", {"caption_0": None},
     "case 1 has no 'caption_0'"),
]  # fmt: skip


def changed(text, name, change):
    """A file whose second row has other fields, or is another row."""
    if name.endswith(".csv"):
        rows, file = [*csv.DictReader(io.StringIO(text))], io.StringIO()
        rows[1] |= change
        cells = ([*itertools.takewhile(lambda x: x is not None, row.values())] for row in rows)
        csv.writer(file).writerows([[*rows[0]], *cells])  # None ends the row
        return file.getvalue()
    if "}\n{" in text:
        first, second, *others = text.split("\n")
        return "\n".join([first, json.dumps(json.loads(second) | change), *others])
    document = json.loads(text)
    key = list(document)[1] if isinstance(document, dict) else 1
    is_part = isinstance(document[key], dict) and isinstance(change, dict)
    document[key] = document[key] | change if is_part else change
    return json.dumps(document)


@pytest.mark.parametrize(("name", "file", "change", "message"), WRONG_ROWS)
def test_a_wrong_row_is_named_by_file_and_case(all_sets, tmp_path, name, file, change, message):
    folder = PUBLISHED[name][1].folder
    shutil.copytree(all_sets / folder, tmp_path / folder)
    path = tmp_path / file
    path.write_text(changed(path.read_text(), file, change), newline="")
    with pytest.raises(DataError, match=f"{Path(file).name}: {message}"):
        PUBLISHED[name][0](tmp_path)
