"""Exports a run's weights for other projects: arrays, config, processor, tokenizer, model card.

  vlc-jax export --workdir runs/clip_ft --to hf --out exported/clip_ft

hf: transformers' CLIPModel / SiglipModel.   open_clip: loads as "local-dir:FOLDER" (CLIP, EVA02).
big_vision: one .npz (SigLIP); big_vision_scan: the same for its models with scan=True.   peft: only
the adapter, for the transformers weights it was trained on; all other formats merge the adapter.
llava: transformers' LlavaForConditionalGeneration, from a captioner over CLIP's tower.
If the library of the format is installed, it must load the folder and compute the same scores (to
1e-4), or nothing is written. No network is needed.
Exit code 0: done; 2: wrong request, or a model that the format cannot hold; 3: damaged checkpoints,
or a folder with other scores; 30: the disk is full; 130: interrupted. After an error nothing is
written.
"""

import errno
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from vlc_jax import weights
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.commands import addresses, command_line
from vlc_jax.input_pipeline.tokenizers import pretrained_folder
from vlc_jax.models import lora
from vlc_jax.report import read_workdir, table
from vlc_jax.run.workdir import saved_config
from vlc_jax.setup import init_from, resolve, weights_compatibility
from vlc_jax.tools import command, llava_folder, verify_export
from vlc_jax.types.setup import Setup
from vlc_jax.weights import folder
from vlc_jax.weights.rename import Rule

# --to -> kind of model -> format
TARGETS = {
    "hf": {"CLIP": "hf_clip", "SigLIP": "hf_siglip"},
    "open_clip": {
        "CLIP": "openai",
        "EVA01-CLIP": "open_clip_eva01",
        "EVA02-CLIP": "open_clip_eva02",
    },
    "big_vision": {"SigLIP": "big_vision"},
    "big_vision_scan": {"SigLIP": "big_vision_scan"},
    "peft": {"CLIP": "hf_clip", "SigLIP": "hf_siglip"},
    # models without a text tower: tools/llava_folder.py
    "llava": {},
}
CHECKED_ON = ("a photo of a cat", "the horse eats the grass", "the grass eats the horse", "red")


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = command_line.parser("export", __doc__)
    parser.add_argument("--workdir", required=True, type=Path, help="of a finished or stopped run")
    parser.add_argument("--to", required=True, choices=TARGETS)
    parser.add_argument("--out", required=True, type=Path, help="a new folder")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="interpreter with the library of the format, for the check; default: this one",
    )
    options = parser.parse_args(arguments)

    def run() -> str:
        try:
            names, verdict = export(options.workdir, options.to, options.out, options.python)
        except SafetensorError as error:
            # its error has no errno of a full disk
            raise OSError(errno.EIO, f"cannot write {options.out}: {error}") from error
        return f"{options.out}: {', '.join(names)}\n{verdict}"

    command.run(run)


def export(
    workdir: Path, target: str, out: Path, python: str = sys.executable
) -> tuple[list[str], str]:
    """Writes the newest parameters of `workdir` into the new folder `out`; returns the names of its
    files, and the result of `verify_export.check` with the interpreter `python`.

    Everything is written beside `out` and moved there at the end. Raises UsageError for a workdir
    without parameters or an existing `out`, WeightsError for a model that `target` cannot hold or a
    folder with other scores.
    """
    if out.exists():
        raise UsageError(f"{out} exists already; name a new folder")
    setup = resolve(saved_config(workdir), "weights")
    if target == "llava":
        sizes = llava_folder.sizes(setup, workdir)
        latest = init_from.load_latest(setup, workdir)
    else:
        kind = exported_kind(setup, workdir, target)
        latest = init_from.load_latest(setup, workdir)
        arrays = renamed_arrays(setup, latest, workdir, target, TARGETS[target][kind])
        facts = describe(setup, kind == "SigLIP")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        if target == "llava":
            llava_folder.write(partial, latest.params, sizes, setup, workdir)
        else:
            write(partial, target, arrays, facts, setup)
        if target in ("hf", "open_clip", "llava"):
            write_tokenizer(partial, setup)
        card = model_card(setup.config, workdir, target, latest.step)
        (partial / "README.md").write_text(card, "utf-8")
        text = setup.tokenizer(CHECKED_ON)
        verdict = verify_export.check(partial, target, setup.model, latest.params, text, python)
        if not (hasattr(setup.tokenizer, "files") or setup.tokenizer_path):
            name = setup.config["text"]["tokenizer"]
            verdict += (
                f"\nthe folder has no tokenizer: {name!r}, the tokenizer of the run, has no files"
            )
        # mkdtemp makes a private folder
        partial.chmod(0o755)
        partial.rename(out)
    # also for Ctrl-C and SIGTERM
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return sorted(path.name for path in out.iterdir()), verdict


def exported_kind(setup: Setup, workdir: Path, target: str) -> str:
    """The kind of the model, a key of TARGETS[target]. Raises UsageError for other models."""
    model = setup.model
    if not weights_compatibility.has_text_tower(model):
        raise UsageError(
            f"{workdir} reads vectors of texts, or token ids in its head, and formats of {target} "
            "need a text tower"
        )
    if model.has_head:
        raise UsageError(
            f"{workdir} scores with the head {setup.origin.model_name}, which no format of "
            f"{target} has; use the model from its workdir"
        )
    is_siglip = model.image.pooling == "map"
    # EVA02-E has the blocks of EVA01
    eva = "EVA02-CLIP" if model.image.activation == "swiglu" else "EVA01-CLIP"
    kind = "SigLIP" if is_siglip else "CLIP" if model.image.key_bias else eva
    if kind not in TARGETS[target]:
        others = [other for other, kinds in TARGETS.items() if kind in kinds]
        raise UsageError(f"{target} has no {kind} format; there are {', '.join(others)}")
    return kind


def renamed_arrays(
    setup: Setup, latest: init_from.Latest, workdir: Path, target: str, form: str
) -> dict[str, np.ndarray]:
    """The newest parameters (for peft, of the adapter only) with the names of the format `form`."""
    architecture = init_from.architecture(setup.model)
    if target == "peft":
        return adapter_arrays(setup, latest, weights.FORMATS[form].rules(architecture))
    try:
        return weights.save(jax.tree.map(np.asarray, latest.params), form, architecture)
    except WeightsError as error:
        variant = setup.config["model"]["variant"]
        raise WeightsError(
            f"{target} cannot hold the model in {workdir} ({variant}): {error}; it can hold "
            "unchanged variants of OpenAI, open_clip, EVA and SigLIP (vlc-jax --list); load this "
            "model from its workdir with vlc_jax.load"
        ) from error


def adapter_arrays(
    setup: Setup, latest: init_from.Latest, rules: Sequence[Rule]
) -> dict[str, np.ndarray]:
    """The adapter of a workdir with PEFT's names."""
    if not setup.parameters.lora or latest.trained is None:
        raise UsageError("there is no trained adapter (config.lora.targets): use --to hf")
    base = Path(setup.origin.path)
    if not (base / "config.json").exists() or (base / "env.json").exists():
        raise UsageError(
            f"a PEFT adapter needs a transformers folder, but this one was trained on {base}; "
            "export the merged weights with --to hf"
        )
    full = weights.flatten({k: v for k, v in latest.trained.items() if k != lora.LORA})
    if full:
        raise UsageError(
            f"the run also trained {min(full)} in full, which a PEFT adapter cannot hold; use --to "
            "hf"
        )
    return weights.peft.save(jax.tree.map(np.asarray, lora.adapters(latest.trained)), rules)


def describe(setup: Setup, is_siglip: bool) -> folder.Model:
    """The model's sizes, token ids and preprocessing, for the config files of other projects."""
    image, text, tokenizer = setup.model.image, setup.model.text, setup.tokenizer
    metadata = setup.origin.metadata.values
    towers = [
        folder.Tower(t.width, t.depth, t.heads, t.mlp_width or 4 * t.width, t.activation, t.epsilon)
        for t in (image, text)
    ]
    return folder.Model(
        *towers,
        embed=text.projection,
        image_size=image.image_size,
        patch_size=image.patch_size,
        context_length=text.context_length,
        vocab_size=text.vocab_size,
        bos_id=getattr(tokenizer, "sot_id", None),
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        mean=metadata["mean"],
        std=metadata["std"],
        crop=metadata["crop"],
        is_siglip=is_siglip,
        is_eva=not image.key_bias,
        interpolation=metadata["interpolation"],
    )


def write(
    out: Path, target: str, arrays: dict[str, np.ndarray], facts: folder.Model, setup: Setup
) -> None:
    """Writes arrays and configs into the folder `out`."""
    if target.startswith("big_vision"):
        np.savez(out / "weights.npz", **arrays)
        return
    if target == "peft":
        lora_config = weights.peft.config(
            arrays,
            rank=setup.parameters.lora["rank"],
            alpha=setup.parameters.lora["alpha"],
            base=str(Path(setup.origin.path).absolute()),
            dropout=setup.parameters.dropout,
        )
        (out / "adapter_config.json").write_text(json.dumps(lora_config, indent=2) + "\n", "utf-8")
        save_arrays(arrays, out / "adapter_model.safetensors")
        return
    files = {"hf": folder.hugging_face, "open_clip": folder.open_clip}[target](facts)
    for name, content in files.items():
        text = json.dumps(folder.without_none(content), indent=2)
        (out / name).write_text(text + "\n", "utf-8")
    name = {"hf": "model", "open_clip": "open_clip_model"}[target]
    save_arrays(arrays, out / f"{name}.safetensors")


def write_tokenizer(out: Path, setup: Setup) -> None:
    """Writes the files of the run's tokenizer, if it has any."""
    if hasattr(setup.tokenizer, "files"):
        for name, content in setup.tokenizer.files().items():
            (out / name).write_text(content, "utf-8")
    elif setup.tokenizer_path:
        for file in pretrained_folder.files(setup.tokenizer_path):
            shutil.copy(file, out / file.name)


def save_arrays(arrays: dict[str, np.ndarray], path: Path) -> None:
    """Writes a safetensors file for torch, world-readable (safetensors itself makes it private)."""
    save_file(arrays, path, metadata={"format": "pt"})
    path.chmod(0o644)


def model_card(config: Mapping[str, Any], workdir: Path, target: str, step: int) -> str:
    """The README of the exported folder, from the config and results of the run."""
    newest = read_workdir.newest_results(workdir)
    rows = table.rows(result for result in newest if result["step"] == step)
    done = "Not trained, converted by vlc_jax"
    if step:
        done = (
            f"Trained with vlc_jax for {step:,} steps of {config['batch_size']:,} pairs, losses "
            f"{', '.join(config['losses'])}, source `{config['input']['source']}`"
        )
    lines = [
        f"# {workdir.name}",
        "",
        f"{done}, exported as {target}. Architecture {config['model']['variant']}, started "
        f"from {config['init_from'] or 'random weights'}.",
        "",
        "| benchmark | metric | value | 95 % interval | chance | n |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        value, low, high, chance = (
            "" if number is None else f"{number:.3f}"
            for number in (row.value, row.low, row.high, row.chance)
        )
        count = "" if row.count is None else row.count
        lines.append(
            f"| {row.benchmark} | {row.metric} | {value} | {low}-{high} | {chance} | {count} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
