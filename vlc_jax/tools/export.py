"""Exports a run's weights for other projects: arrays, config, processor, tokenizer, model card.

  vlc-jax export runs/clip_ft --to hf --out exported/clip_ft

hf: transformers' CLIPModel / SiglipModel.   open_clip: loads as "local-dir:FOLDER" (CLIP, also with
RoBERTa, EVA).   big_vision: one .npz (SigLIP); big_vision_scan: the same for its models with
scan=True.   peft: only the adapter, for the transformers weights it was trained on; all other
formats merge the adapter.
llava: transformers' LlavaForConditionalGeneration, from a captioner over CLIP's tower.
stablehlo: both towers as programs of jax.export, parameters included, for any model of two towers.
`vlc_jax.load` reads every folder but that of stablehlo.
If the library of the format is installed, it must load the folder and compute the same scores (to
1e-4), or nothing is written. No network is needed, except for --push, which makes the folder a
commit of a model repository of the Hugging Face hub; a new repository is private.
Exit code 0: done; 2: wrong request, or a model that the format cannot hold; 3: damaged checkpoints,
or a folder with other scores; 30: the disk is full; 130: interrupted. After an error nothing is
written.
"""

import argparse
import errno
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from vlc_jax import weights
from vlc_jax.encode import calibrated, inference
from vlc_jax.errors import UsageError, WeightsError, usage_errors
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.stores import StoreError, any_path, hub_api
from vlc_jax.models import lora
from vlc_jax.models.clip import CLIP
from vlc_jax.models.resnet import ResNet
from vlc_jax.models.roberta import RobertaTower
from vlc_jax.models.swin import Swin
from vlc_jax.report import read_workdir, table, to_markdown
from vlc_jax.run import workdir_files
from vlc_jax.run.workdir import saved_config
from vlc_jax.setup import data, exported_config, init_from, resolve, weights_compatibility
from vlc_jax.tools import command, llava_folder, stablehlo, verify_export
from vlc_jax.types.setup import Setup
from vlc_jax.weights import folder
from vlc_jax.weights.rename import Rule

# --to -> kind of model -> format
TARGETS = {
    "hf": {"CLIP": "hf_clip", "SigLIP": "hf_siglip", "SigLIP 2 NaFlex": "hf_siglip2_naflex"},
    "open_clip": {
        "CLIP": "openai",
        "RoBERTa-CLIP": "open_clip_roberta",
        "CLIP with a ResNet": "openai_resnet",
        "EVA01-CLIP": "open_clip_eva01",
        "EVA02-CLIP": "open_clip_eva02",
    },
    "big_vision": {"SigLIP": "big_vision", "SigLIP 2 NaFlex": "big_vision_naflex"},
    "big_vision_scan": {"SigLIP": "big_vision_scan", "SigLIP 2 NaFlex": "big_vision_naflex_scan"},
    "peft": {"CLIP": "hf_clip", "SigLIP": "hf_siglip"},
    # models without a text tower: tools/llava_folder.py
    "llava": {},
    # programs and no arrays: tools/stablehlo.py
    "stablehlo": {},
}
CHECKED_ON = ("a photo of a cat", "the horse eats the grass", "the grass eats the horse", "red")


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("export", __doc__)
    workdir = parser.add_mutually_exclusive_group(required=True)
    workdir.add_argument("run", nargs="?", type=Path, help="workdir of a finished or stopped run")
    workdir.add_argument("--workdir", type=Path, help="the same")
    add = parser.add_argument
    add("--to", required=True, choices=TARGETS)
    add("--out", required=True, type=Path, help="a new folder")
    text = "interpreter with the library of the format, for the check; default: this one"
    add("--python", default=sys.executable, help=text)
    text = "repository of the Hugging Face hub for the folder"
    add("--push", metavar="OWNER/NAME", help=text)
    text = f"of stablehlo; default: {' '.join(stablehlo.ALL)}"
    add("--platforms", nargs="+", choices=stablehlo.PLATFORMS, help=text)
    return parser


def _run(options: argparse.Namespace) -> str:
    # before the export, which takes minutes
    if options.push:
        with usage_errors():
            options.push = hub_api.check_push(options.push)
    workdir, out = options.run or options.workdir, options.out
    try:
        names, verdict = export(workdir, options.to, out, options.python, options.platforms)
    except SafetensorError as error:
        # its error has no errno of a full disk
        raise OSError(errno.EIO, f"cannot write {out}: {error}") from error
    done = f"{out}: {', '.join(names)}\n{verdict}"
    return f"{done}\npushed to {pushed(out, options.push)}" if options.push else done


def export(
    workdir: Path,
    target: str,
    out: Path,
    python: str = sys.executable,
    platforms: Sequence[str] | None = None,
) -> tuple[list[str], str]:
    """Writes the newest parameters of `workdir` into the new folder `out`; returns the names of its
    files, and the result of `verify_export.check` with the interpreter `python`.

    platforms: of stablehlo alone; None: `stablehlo.ALL`.
    Everything is written beside `out` and moved there at the end. Raises UsageError for a workdir
    without parameters or an existing `out`, WeightsError for a model that `target` cannot hold or a
    folder with other scores.
    """
    if platforms and target != "stablehlo":
        raise UsageError(f"--platforms belongs to --to stablehlo, not to {target}")
    with workdir_files.new_folder(out) as partial:
        setup = resolve(saved_config(workdir), "weights")
        fill = filler(setup, workdir, target, platforms or stablehlo.ALL)
        latest = init_from.load_latest(setup, workdir)
        fill(partial, latest)
        is_known = target != "llava" or setup.tokenizer_path
        tokenizer = exported_config.write_tokenizer(partial, setup) if is_known else None
        if target not in ("llava", "stablehlo"):
            ours = exported_config.content(saved_config(workdir), tokenizer)
            any_path.write_json(partial / exported_config.NAME, ours, indent=2)
        card = model_card(setup.config, workdir, target, latest.step)
        (partial / "README.md").write_text(card, "utf-8")
        if target == "stablehlo":
            verdict = stablehlo.check(partial, setup, latest.params)
        else:
            text = setup.tokenizer(CHECKED_ON)
            verdict = verify_export.check(partial, target, setup.model, latest.params, text, python)
        if tokenizer is None:
            name = setup.config["text"]["tokenizer"]
            verdict += (
                f"\nthe folder has no tokenizer: {name!r}, the tokenizer of the run, has no files"
            )
        verdict += carried(partial, target, inference.Model(setup, latest.variables), workdir)
    return sorted(path.name for path in out.iterdir()), verdict


def carried(out: Path, target: str, model: inference.Model, workdir: Path) -> str:
    """Copies the run's calibration, if it is of these parameters; returns a line about it."""
    file = workdir / calibrated.NAME
    if not file.exists():
        return ""
    # in formats that vlc_jax.load reads to the bit: peft's adapter is merged in another order
    is_exact = target not in ("peft", "llava", "stablehlo")
    if not is_exact or calibrated.read(file).fingerprint != model.score_fingerprint:
        why = "is of other parameters" if is_exact else f"cannot go with {target}"
        return f"\n{file} {why}: the folder has none"
    shutil.copy(file, out)
    return f"\n{calibrated.NAME} is copied: model.probability works on the folder"


def pushed(out: Path, repository: str) -> str:
    """Address of the commit of an exported folder. Raises UsageError or StoreError."""
    try:
        return hub_api.push(out, repository)
    except (ValueError, StoreError) as error:
        advice = f"{out} is written: push it with hf upload {repository} {out}"
        kind = StoreError if isinstance(error, StoreError) else UsageError
        raise kind(f"{error}; {advice}") from error


Fill = Callable[[Path, init_from.Latest], None]


def filler(setup: Setup, workdir: Path, target: str, platforms: Sequence[str]) -> Fill:
    """A function that writes parameters into a folder, in the format `target`.

    Raises UsageError or WeightsError for a model that the format cannot hold.
    """
    if target == "llava":
        sizes = llava_folder.sizes(setup, workdir)
        return lambda out, latest: llava_folder.write(out, latest.params, sizes, setup, workdir)
    if target == "stablehlo":
        check_towers(setup, workdir, target)
        options = data.tokenizer_options(saved_config(workdir))
        return lambda out, latest: stablehlo.write(out, setup, latest.params, platforms, options)
    kind = exported_kind(setup, workdir, target)

    def fill(out: Path, latest: init_from.Latest) -> None:
        arrays = renamed_arrays(setup, latest, workdir, target, TARGETS[target][kind])
        write(out, target, arrays, describe(setup, "SigLIP" in kind), setup)

    return fill


def check_towers(setup: Setup, workdir: Path, target: str) -> None:
    """Raises UsageError for a model that is more than an image tower and a text tower."""
    if not weights_compatibility.has_text_tower(setup.model):
        raise UsageError(
            f"{workdir} reads vectors of texts, or token ids in its head, and formats of {target} "
            "need a text tower"
        )
    if setup.model.has_head:
        raise UsageError(
            f"{workdir} scores with the head {setup.origin.model_name}, which no format of "
            f"{target} has; use the model from its workdir"
        )


def exported_kind(setup: Setup, workdir: Path, target: str) -> str:
    """The kind of the model, a key of TARGETS[target]. Raises UsageError for other models."""
    check_towers(setup, workdir, target)
    kind = _kind(setup.model)
    if kind not in TARGETS[target]:
        others = [other for other, kinds in TARGETS.items() if kind in kinds]
        raise UsageError(f"{target} has no {kind} format; there are {', '.join(others) or 'none'}")
    return kind


def _kind(model: CLIP) -> str:
    image = model.image
    if isinstance(model.text, RobertaTower):
        return "RoBERTa-CLIP"
    if isinstance(image, ResNet):
        return "CLIP with a ResNet"
    if isinstance(image, Swin):
        return "Swin-CLIP"
    if image.norm_after_pooling:
        return "OpenVision"
    if image.position_grid:
        return "SigLIP 2 NaFlex"
    if image.pooling == "map":
        return "PE-Core" if image.pre_norm else "SigLIP"
    # EVA02-E has the blocks of EVA01
    eva = "EVA02-CLIP" if image.activation == "swiglu" else "EVA01-CLIP"
    return "CLIP" if image.key_bias else eva


def renamed_arrays(
    setup: Setup, latest: init_from.Latest, workdir: Path, target: str, form: str
) -> dict[str, np.ndarray]:
    """The newest parameters (for peft, of the adapter only) with the names of the format `form`."""
    architecture = init_from.architecture(setup.model)
    if target == "peft":
        return adapter_arrays(setup, latest, weights.FORMATS[form].rules(architecture))
    # a head that scores by pooled features has parameters for training alone
    params = {name: part for name, part in latest.params.items() if name != "head"}
    try:
        return weights.save(jax.tree.map(np.asarray, params), form, architecture)
    except WeightsError as error:
        variant = setup.config["model"]["variant"]
        raise WeightsError(
            f"{target} cannot hold the model in {workdir} ({variant}): {error}; it can hold "
            "unchanged variants of OpenAI, open_clip, EVA and SigLIP (vlc-jax --list); load this "
            "model from its workdir with vlc_jax.load, or export it --to stablehlo"
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
    is_resnet = isinstance(image, ResNet)
    towers = [
        folder.Tower(t.width, t.depth, t.heads, s.mlp_width or 4 * s.width, s.activation, s.epsilon)
        # a ResNet has no such fields: those of its text tower
        for t, s in ((image, text if is_resnet else image), (text, text))
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
        is_eva="EVA" in _kind(setup.model),
        interpolation=metadata["interpolation"],
        roberta=(text.pooling, text.projection_kind) if isinstance(text, RobertaTower) else None,
        stages=image.stages if is_resnet else (),
        position_grid=getattr(image, "position_grid", None),
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
        any_path.write_json(out / "adapter_config.json", lora_config, indent=2)
        save_arrays(arrays, out / "adapter_model.safetensors")
        return
    files = {"hf": folder.hugging_face, "open_clip": folder.open_clip}[target](facts)
    for name, content in files.items():
        any_path.write_json(out / name, folder.without_none(content), indent=2)
    name = {"hf": "model", "open_clip": "open_clip_model"}[target]
    save_arrays(arrays, out / f"{name}.safetensors")


def save_arrays(arrays: dict[str, np.ndarray], path: Path) -> None:
    """Writes a safetensors file for torch, world-readable (safetensors itself makes it private)."""
    save_file(arrays, path, metadata={"format": "pt"})
    path.chmod(0o644)


def model_card(config: Mapping[str, Any], workdir: Path, target: str, step: int) -> str:
    """The README of the exported folder, from the config and results of the run."""
    newest = read_workdir.newest_results(workdir)
    rows = table.rows(result for result in newest if result["step"] == step)
    done, start = "Not trained, converted by vlc_jax", config["init_from"] or "random weights"
    if not step and not config["init_from"]:
        done, start = "Saved by a program (Model.save)", "parameters of that program"
    if step:
        done = (
            f"Trained with vlc_jax for {step:,} steps of {config['batch_size']:,} pairs, losses "
            f"{', '.join(config['losses'])}, source `{config['input']['source']}`"
        )
    lines = [
        f"# {workdir.name}",
        "",
        f"{done}, exported as {target}. Architecture {config['model']['variant']}, started from "
        f"{start}.",
        "",
        to_markdown.table(table.to_table(rows)) if rows else "",
    ]
    return "\n".join(lines)


main = command.main(_parser, _run)

if __name__ == "__main__":
    sys.exit(main())
