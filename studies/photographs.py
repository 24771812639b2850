"""CLIP on Flickr8k's photographs, 0.9 M parameters at 64 pixels: from nothing, or finetuned.

  VLC_PHOTOGRAPHS=FOLDER python -m studies.photographs --out runs/tables
  VLC_PHOTOGRAPHS=FOLDER python -m vlc_jax.main --workdir runs/photographs \\
    --config studies/photographs.py:tables=runs/tables
  VLC_PHOTOGRAPHS=FOLDER python -m vlc_jax.main --workdir runs/photographs_hn \\
    --config studies/photographs.py:tables=runs/tables,method=hn --config.init_from=runs/photographs

FOLDER holds flickr8k/captions.csv, a table of image names, captions and splits, and sets/, a root
of published sets. The first command writes a vocabulary of the training captions, the captions with
the images of others, negatives that a blind classifier does not recognize, as many at random, and
the benchmarks: for a caption of the test split with a word of SYNONYMS a negative (its foil) and a
positive (its synonym) in the same place, swapped words, shuffled words. With them come the shares
of the cases that the texts alone tell.

Arguments: tables; method=clip (from nothing), clip_ft, or one of configs/records.py; captions=
permuted (every image has those of another one); texts=balanced|random; segments=crops; split.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tokenizers
from ml_collections import ConfigDict

from vlc_jax.configs import records
from vlc_jax.configs.common import arguments, pretrained
from vlc_jax.evaluators import stats
from vlc_jax.input_pipeline.benchmarks import READERS, nulls, protocol_of
from vlc_jax.input_pipeline.hard_texts import edit, word_tables
from vlc_jax.input_pipeline.hard_texts.negatives import NEGATIVES
from vlc_jax.input_pipeline.hard_texts.positives import POSITIVES

CAPTIONS, PERMUTED, VOCABULARY = "captions.csv", "permuted.csv", "tokenizer.json"
SIZE, VARIANT, BATCH = 64, "mini/8", 128
NEW, FINETUNED = (15, 1e-3), (5, 5e-4)  # epochs and learning rate
PIECES, LENGTH = 4000, 32  # of the vocabulary; 99.9 % of the captions are no longer
KINDS = ("action", "color", "size", "state")
UNSEEN = {  # word -> a synonym that hard positives never take
    "standing": "stood", "sitting": "perched", "walking": "ambling", "eating": "consuming",
    "white": "alabaster", "black": "jet", "blue": "azure", "brown": "umber", "red": "scarlet",
    "green": "jade", "large": "sizable", "small": "little", "long": "extended", "wet": "soaked",
    "smiling": "grinning", "old": "elderly", "young": "juvenile",
}  # fmt: skip
SYNONYMS = {  # word -> the synonym that hard positives take in its place, and that of UNSEEN
    word: (synonym, UNSEEN[word])
    for kind in KINDS
    for word, synonym in word_tables.REPLACE[kind].items()
    if word in UNSEEN
}
FOILS = {  # word -> words that contradict it
    word: {
        foil
        for kind in KINDS
        for group in word_tables.CREPE_GROUPS[kind]
        for foil in group
        if word in group and not word_tables.same_meaning(foil, word)
    }
    for word in SYNONYMS
}
TABLES = {  # benchmark and its table -> reader
    "photographs_replace": "triplet",
    "photographs_unseen": "triplet",
    "photographs_swap": "choice",
    "photographs_swap_positives": "triplet",
    "photographs_order": "choice",
}


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument, tables="", method="clip", captions=arguments.OneOf("paired", "permuted"),
        texts=arguments.OneOf("rules", "balanced", "random"), segments="", split="test",
    )  # fmt: skip
    tables, root = Path(args.tables), photographs()
    path = tables / PERMUTED if args.captions == "permuted" else root / "flickr8k" / CAPTIONS
    folder, method = str(root / "flickr8k"), args.method.replace("clip_ft", "clip")
    epochs, rate = NEW if args.method == "clip" else FINETUNED
    options = {"path": str(path), "image_folder": folder, "holdout": 0.0, "method": method}
    options |= {"size": SIZE, "variant": VARIANT, "batch": BATCH, "epochs": epochs}
    config = records.get_config(options)
    with config.unlocked():
        config.input.source_options.split_column = "split"
        config.text.tokenizer, config.text.context_length = "hf", LENGTH
        special = {"eos_token": "<eos>", "pad_token": "<pad>"}
        config.text.tokenizer_options = ConfigDict({"path": str(tables / VOCABULARY), **special})
        config.model.vocab_size = PIECES + 1
        config.optimizer.learning_rate = rate
        if args.texts != "rules":
            table = {"path": str(tables / f"{args.texts}.jsonl")}
            count = config.input.negatives.count
            pretrained.use_texts(
                config.input.negatives, count, "skip", {"from_table": 1.0}, from_table=table
            )
        config.eval.cache, config.eval.every = str(tables / "cache"), pretrained.LAST
        segments = {"segments": args.segments} if args.segments else {}
        sets = evaluations(tables, root, args.split)
        config.evals = ConfigDict({name: options | segments for name, options in sets.items()})
    return config


def evaluations(tables: Path, root: Path, split: str) -> dict[str, dict]:
    """Benchmark -> its options: those of Flickr8k, and of published sets with photographs."""
    rows = {"path": str(root / "flickr8k" / CAPTIONS), "split": split, "split_column": "split"}
    retrieval = {"reader": "retrieval", **rows}
    if split == "dev":
        return {"photographs_retrieval": retrieval}
    shuffled = {"text_shuffle": "shuffle_words"}
    published = ("whatsup_a", "reporting_bias", "sugarcrepe")
    valse = {"subsets": ("coreference-standard", "foil-it", "plurals", "relations")}
    return {
        "photographs_retrieval": retrieval,
        "photographs_shuffled": retrieval | shuffled,
        **{name: options_of(name, tables, root) for name in TABLES},
        **{name: {"root": str(root / "sets")} for name in published},
        "valse": {"root": str(root / "sets"), **valse},
    }


def options_of(name: str, tables: Path, root: Path) -> dict[str, str | None]:
    """Options of a benchmark of TABLES."""
    folder, path = str(root / "flickr8k"), str(tables / f"{name}.jsonl")
    columns = {f"{side}_column": side for side in ("negatives", "positives")}
    if TABLES[name] == "choice":
        del columns["positives_column"]
    rows = {"path": path, "image_folder": folder, "split": "all", "split_column": None}
    return {"reader": TABLES[name], **rows, **columns}


def photographs() -> Path:
    """The folder of photographs."""
    folder = os.environ.get("VLC_PHOTOGRAPHS", "")
    if not (path := Path(folder, "flickr8k", CAPTIONS)).is_file():
        raise ValueError(f"VLC_PHOTOGRAPHS names a folder with flickr8k/{CAPTIONS}; no file {path}")
    return Path(folder)


def write(out: Path) -> None:
    """Writes the tables, the vocabulary, and the shares of cases that texts tell (evals/)."""
    root = photographs()
    with (root / "flickr8k" / CAPTIONS).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    out.mkdir(parents=True, exist_ok=True)
    train = [row for row in rows if row["split"] == "train"]
    vocabulary([row["caption"] for row in train]).save(str(out / VOCABULARY))
    images = sorted({row["image"] for row in train})
    # half of the images away: no caption keeps its image
    other = dict(zip(images, np.roll(images, len(images) // 2), strict=True))
    with (out / PERMUTED).open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ("image", "caption", "split"))
        table.writeheader()
        table.writerows({**row, "image": str(other[row["image"]])} for row in train)
    (out / "train.txt").write_text("".join(f"{row['caption']}\n" for row in train), "utf-8")
    balance = "--kinds crepe_replace,crepe_swap --show 1 --balance 0.52 --sample 12000"
    table = ["--table", str(out / "train.txt"), "--out", str(balanced := out / "balanced.jsonl")]
    command = [sys.executable, "-m", "vlc_jax", "hard_texts", *table, *balance.split()]
    if not balanced.exists():
        subprocess.run(command, check=True)
    kinds = json.loads(Path(f"{balanced}.json").read_text())["counts"]["kinds"]
    texts = "".join(f"{json.dumps(line)}\n" for line in at_random(train, kinds))
    (out / "random.jsonl").write_text(texts, "utf-8")
    counts = Counter(word for row in train for word in row["caption"].lower().split())
    lines = list(cases([row for row in rows if row["split"] == "test"], counts))
    for name, reader in TABLES.items():
        mine = [json.dumps(line) for key, line in lines if key == name]
        (out / f"{name}.jsonl").write_text("\n".join(mine) + "\n", "utf-8")
        options = options_of(name, out, root)
        benchmark = READERS[options.pop("reader")](**options)
        metrics = {
            f"{metric}_{null}": stats.proportion(credit, None)._asdict()
            for metric, shares in nulls.case_credits(benchmark, protocol_of(reader)).items()
            for null, credit in shares.items()
        }
        keep(out, name, metrics)
    found = {}
    for kind, of in kinds.items():
        # texts that the filter keeps; of those outside its sample, what a blind classifier knows
        for share, right, number in (
            ("kept", of["kept"], of["pairs"]),
            ("blind", of["blind_outside"] * of["outside"], of["outside"]),
        ):
            shares = stats.proportion(np.arange(number) < round(right), None)
            found[f"{share}/kind={kind}"] = shares._asdict()
    keep(out, "photographs_balance", found)


def at_random(
    rows: list[dict[str, str]], kinds: Mapping[str, Mapping[str, int]]
) -> Iterator[dict[str, object]]:
    """Captions with as many negatives of each kind as the filter kept, drawn without a look."""
    rng, makers = np.random.default_rng(0), {kind: NEGATIVES[kind]() for kind in kinds}
    for caption in dict.fromkeys(row["caption"] for row in rows):
        texts = [
            text
            for kind, of in kinds.items()
            for text in makers[kind](caption, rng, 1)
            if rng.random() < of["kept"] / of["pairs"]
        ]
        if texts:
            yield {"caption": caption, "negatives": texts}


def keep(out: Path, name: str, metrics: Mapping[str, object]) -> None:
    """Writes metrics as an evaluation does, for the study."""
    (out / "evals" / name).mkdir(parents=True, exist_ok=True)
    (out / "evals" / name / "0.json").write_text(json.dumps({"metrics": metrics}))


def vocabulary(captions: list[str]) -> tokenizers.Tokenizer:
    """Byte-pair encoding of lower-cased captions, with a token for their end and for padding."""
    pairs = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    pairs.normalizer = tokenizers.normalizers.Lowercase()
    pairs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=PIECES,
        min_frequency=2,
        special_tokens=["<pad>", "<unk>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    pairs.train_from_iterator(captions, trainer)
    pairs.add_special_tokens(["<eos>"])  # the largest id, by which towers find the end
    return pairs


def cases(
    rows: list[dict[str, str]], counts: Counter[str]
) -> Iterator[tuple[str, dict[str, object]]]:
    """Benchmark of TABLES and a row of it, for each caption that offers the hard texts.

    counts: of words in training captions.
    """
    makers = {name: NEGATIVES[name]() for name in ("crepe_swap", "shuffle_words")}
    reorder, words = POSITIVES["swap"](), edit.whole(FOILS)
    for number, row in enumerate(rows):
        rng, caption = np.random.default_rng(number), row["caption"]
        line = {"image": row["image"], "caption": caption}
        if found := list(words.finditer(caption)):
            match = found[rng.integers(len(found))]
            word = match[0].lower()
            # as common as the word: else rare foils would give themselves away
            foils = sorted(FOILS[word])
            weights = np.array([counts[foil] for foil in foils])
            texts = (str(rng.choice(foils, p=weights / weights.sum())), *SYNONYMS[word])
            negative, *positives = [
                edit.repaired(caption, [(*match.span(), edit.like(text, match[0]))])
                for text in texts
            ]
            for name, positive in zip(TABLES, positives, strict=False):
                yield name, line | {"negatives": [negative], "positives": [positive]}
        swapped, shuffled = (list(make(caption, rng, 1)) for make in makers.values())
        if swapped:
            yield "photographs_swap", line | {"negatives": swapped}
            if positives := list(reorder(caption, rng, 1)):
                texts = {"negatives": swapped, "positives": positives}
                yield "photographs_swap_positives", line | texts
        if shuffled:
            yield "photographs_order", line | {"negatives": shuffled}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    write(parser.parse_args().out)
