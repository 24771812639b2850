"""A LLaVA, or any run, on benchmarks by the protocols of models that answer.

  python -m vlc_jax.main --mode eval --workdir runs/llava \\
    --config configs/eval/llava.py:path=llava-1.5-7b-hf,root=DIR,sets=whatsup_a_two_way+mmvp

Arguments: path (a folder of LLaVA's weights in Hugging Face's or its own layout, or the workdir of
a run); tokenizer (its file or folder, if it is not in that folder); root and sets (joined by +) as
in configs/eval/all.py, and sets of the scenes by their name; protocols, joined by +:

  vqascore         the question "Does this figure show ...?" about every caption, all sets
  vqascore_no_end  the same without the end token after "Yes"
  score            the model's own score of a caption, such as log p(caption | image)
  keywords         keywords in its answers: What'sUp, COCO- and GQA-spatial, POPE, VSR, sets of
                   the scenes
  letters          MMVP and MMVP-VLM: the likelier of "A" and "B"
  options          the likelier of "(a) Open" and "(b) Closed", and the relaxed pair
  written          the letter that it writes
  m3id             keywords and written, decoded by M3ID with t from 0 (_t0) and from 1 (_t1)

By default all but score and vqascore_no_end, each on its sets. count (cases of each set, 0 for
all); world (of the sets of the scenes); tie (strict, first_index, last_index or half). Every result
names protocol, prompt and weights.

Values of the papers are in docs/mllm.md; 2 points to either side are a match (seeds of swaps, sizes
of images and kinds of GPU).
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax import errors
from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, scenes
from vlc_jax.configs.eval import all as suite

SPATIAL = (
    "whatsup_a", "whatsup_b", "whatsup_a_two_way", "whatsup_b_two_way", "coco_spatial_one",
    "coco_spatial_two", "gqa_spatial_one", "gqa_spatial_two", "scenes_spatial",
)  # fmt: skip
SHORT = (  # sets whose cases have a question with short answers, one per caption
    "scenes_objects",
    "scenes_attribute_swap",
    "scenes_relation_swap",
    "scenes_negation",
    "scenes_held_attribute_swap",
    "scenes_held_relation_swap",
    "pope",
    "vsr",
)
QUESTIONS = ("mmvp", "mmvp_vlm")  # sets whose cases have questions and options
_KEYWORDS, _CHOICE = {"protocol": "keywords"}, {"protocol": "multiple_choice", "texts": "questions"}
# Protocol, its sets (None: all), options of an evaluation; each row of a protocol is an evaluation
# with its own name.
PROTOCOLS: tuple[tuple[str, tuple[str, ...] | None, dict], ...] = (
    ("vqascore", None, {"vqascore": {"eos": True}}),
    ("vqascore_no_end", None, {"vqascore": {"eos": False}}),
    ("score", None, {}),
    ("keywords", (*SPATIAL, *SHORT), _KEYWORDS),
    ("letters", QUESTIONS, {**_CHOICE, "answer": "letters"}),
    ("options", QUESTIONS, {**_CHOICE, "answer": "options"}),
    ("written", QUESTIONS, {**_CHOICE, "decoding": "greedy"}),
    *(
        ("m3id", sets, {**options, "decoding": "m3id", "first_step": first})
        for sets, options in ((SPATIAL, _KEYWORDS), (QUESTIONS, _CHOICE))
        for first in (0, 1)
    ),
)
DEFAULT = ("vqascore", "keywords", "letters", "options", "written", "m3id")

# arguments of `evaluations`
ARGUMENTS = {"root": "", "sets": "", "protocols": "", "count": 0, "tie": "strict"}


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, path="", tokenizer="", world="scenes-mini", **ARGUMENTS)
    if not args.path or not args.sets:
        raise ValueError("path=... (the model) and sets=... (names joined by +) are missing")
    config = default.get_config()
    with config.unlocked():
        config.init_from, config.model.name = args.path, "init_from"
        if args.tokenizer:
            config.text.tokenizer_options = ConfigDict({"path": args.tokenizer})
        scene_sets = scenes.evaluations("test", world=args.world, more=("scenes_spatial",))
        config.evals = ConfigDict(evaluations(args, scene_sets))
    return config


def evaluations(args: SimpleNamespace, scene_sets: dict[str, dict]) -> dict[str, dict]:
    """Evaluations NAME_PROTOCOL of the arguments' sets and protocols; scene_sets: the sets of the
    scenes and their options."""
    names = args.sets.split("+")
    protocols = args.protocols.split("+") if args.protocols else DEFAULT
    for name in names:
        errors.known("set", name, (*suite.SETS, *scene_sets), ValueError)
    for protocol in protocols:
        errors.known("protocol", protocol, dict.fromkeys(row[0] for row in PROTOCOLS), ValueError)
        fitting = {name for row in PROTOCOLS if row[0] == protocol for name in row[1] or names}
        if args.protocols and not fitting & {*names}:
            raise ValueError(f"protocol {protocol} is for {', '.join(sorted(fitting))} only")
    count, evals = {"count": args.count} if args.count else {}, {}
    for protocol, sets, options in PROTOCOLS:
        for name in names if protocol in protocols else ():
            if sets is None or name in sets:
                step = f"_t{options['first_step']}" if "first_step" in options else ""
                tie = {} if options.get("protocol") == "keywords" else {"tie": args.tie}
                shared = scene_sets.get(name, {"root": args.root}) | count | {"reader": name}
                evals[f"{name}_{protocol}{step}"] = shared | tie | options
    return evals
