"""Who may import whom: the rule of every room, checked on the syntax tree of every file."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = ("vlc_jax", "input_pipeline", "configs")

# Room (longest matching prefix of a module's name) -> what of ours it may import. Everything may
# import itself. A room that is missing here has no rule, which the test refuses.
ROOMS: dict[str, tuple[str, ...]] = {
    "configs": (),
    "configs.common": ("configs.default",),
    "input_pipeline": (),
    "vlc_jax": ("vlc_jax.inference",),
    "vlc_jax.errors": (),
    "vlc_jax.types": (),
    "vlc_jax.workdir_files": ("input_pipeline.stores",),
    "vlc_jax.models": ("vlc_jax.types", "vlc_jax.errors"),
    "vlc_jax.losses": ("vlc_jax.types", "vlc_jax.errors"),
    "vlc_jax.weights": ("vlc_jax.errors",),
    "vlc_jax.optimizer": ("vlc_jax.types", "vlc_jax.errors"),
    "vlc_jax.sharding": ("vlc_jax.types", "vlc_jax.errors"),
    "vlc_jax.run": (),
    "vlc_jax.run.checkpoint": ("vlc_jax.types", "vlc_jax.errors", "vlc_jax.run.step_folders"),
    "vlc_jax.run.step_folders": ("input_pipeline.fetch", "input_pipeline.stores"),
    "vlc_jax.run.store_lock": (
        *("vlc_jax.errors", "vlc_jax.workdir_files", "input_pipeline.stores"),
    ),
    "vlc_jax.run.remote_workdir": (
        *("vlc_jax.errors", "vlc_jax.run.store_lock"),
        *("input_pipeline.fetch", "input_pipeline.mirror", "input_pipeline.stores"),
    ),
    "vlc_jax.run.metrics": ("vlc_jax.types", "vlc_jax.errors", "vlc_jax.workdir_files"),
    "vlc_jax.run.preemption": ("vlc_jax.errors",),
    "vlc_jax.run.peers": ("vlc_jax.errors", "vlc_jax.workdir_files", "input_pipeline.stores"),
    "vlc_jax.run.watchdog": ("vlc_jax.errors", "vlc_jax.run.metrics"),
    "vlc_jax.run.guard": (
        *("vlc_jax.errors", "vlc_jax.startup", "input_pipeline.fetch", "input_pipeline.stores"),
        *("vlc_jax.run.peers", "vlc_jax.run.preemption", "vlc_jax.run.terminal"),
    ),
    "vlc_jax.run.renamed_fields": ("vlc_jax.errors",),
    "vlc_jax.run.workdir": (
        *("vlc_jax.errors", "vlc_jax.run.renamed_fields", "vlc_jax.workdir_files"),
        *("vlc_jax.run.environment", "vlc_jax.run.peers", "vlc_jax.run.remote_workdir"),
        *("vlc_jax.run.step_folders", "input_pipeline.stores"),
    ),
    "vlc_jax.run.results": ("vlc_jax.workdir_files",),
    "vlc_jax.evaluators": (
        "vlc_jax.types",
        "vlc_jax.errors",
        "vlc_jax.run.metrics",
        "vlc_jax.sharding",
        "vlc_jax.workdir_files",
        "vlc_jax.generative.prompts",
        "input_pipeline",
    ),
    "vlc_jax.generative": (
        *("vlc_jax.types", "vlc_jax.errors", "vlc_jax.models", "input_pipeline"),
    ),
    "vlc_jax.published": (),
    "vlc_jax.report": (
        *("vlc_jax.published", "vlc_jax.workdir_files", "input_pipeline.addresses"),
    ),
    "vlc_jax.chips": (),
    "vlc_jax.hlo": (),
    "vlc_jax.devices": ("vlc_jax.chips", "vlc_jax.errors", "input_pipeline.stores"),
    "vlc_jax.state": (),
    "vlc_jax.parameters": ("vlc_jax.models", "vlc_jax.sharding", "vlc_jax.errors"),
    "vlc_jax.setup": (
        *("vlc_jax.devices", "vlc_jax.sharding", "vlc_jax.optimizer", "vlc_jax.state"),
        "vlc_jax.parameters",
        *("vlc_jax.models", "vlc_jax.losses", "vlc_jax.evaluators", "vlc_jax.weights"),
        *("vlc_jax.run", "vlc_jax.errors", "vlc_jax.types", "input_pipeline"),
    ),
    # the two places that make a config themselves, of weights that come without
    "vlc_jax.setup.weights_config": ("vlc_jax", "input_pipeline", "configs"),
    "vlc_jax.setup.llava_config": (
        "vlc_jax.errors",
        "vlc_jax.generative.prompts",
        "vlc_jax.models.llava",
        "vlc_jax.weights",
        "input_pipeline",
        "configs",
    ),
    "vlc_jax.setup.config_of_run": ("vlc_jax", "configs", "input_pipeline.stores"),
    "vlc_jax.text_encoders": (
        *("vlc_jax.setup", "vlc_jax.encode", "vlc_jax.generative", "vlc_jax.models", "vlc_jax.run"),
        *("vlc_jax.sharding", "vlc_jax.weights", "vlc_jax.errors", "vlc_jax.types"),
        "input_pipeline",
    ),
    "vlc_jax.inference": (
        *("vlc_jax.setup", "vlc_jax.encode", "vlc_jax.evaluators", "vlc_jax.run"),
        *("vlc_jax.text_encoders", "vlc_jax.answers", "vlc_jax.score_blocks", "vlc_jax.errors"),
        "input_pipeline",
    ),
    "vlc_jax.generate": ("vlc_jax.tools.command", "vlc_jax.errors", "input_pipeline.addresses"),
    "vlc_jax.score": ("vlc_jax.tools.command", "input_pipeline.addresses"),
    "vlc_jax.train_step": (
        *("vlc_jax.setup", "vlc_jax.state", "vlc_jax.sharding", "vlc_jax.losses"),
        *("vlc_jax.models", "vlc_jax.types"),
    ),
    "vlc_jax.score_blocks": ("vlc_jax.evaluators", "vlc_jax.types"),
    "vlc_jax.encode": (
        *("vlc_jax.setup", "vlc_jax.sharding", "vlc_jax.evaluators", "vlc_jax.types"),
        "input_pipeline",
    ),
    "vlc_jax.feature_cache": ("vlc_jax.errors", "vlc_jax.workdir_files"),
    "vlc_jax.encode_once": (
        *("vlc_jax.setup", "vlc_jax.encode", "vlc_jax.feature_cache", "vlc_jax.evaluators"),
        "vlc_jax.score_blocks",
        *(
            "vlc_jax.answers",
            "vlc_jax.devices",
            "vlc_jax.sharding",
            "vlc_jax.parameters",
            "vlc_jax.types",
        ),
        "input_pipeline",
    ),
    "vlc_jax.answers": (
        *("vlc_jax.setup", "vlc_jax.encode", "vlc_jax.evaluators", "vlc_jax.generative"),
        *("vlc_jax.models", "vlc_jax.errors", "vlc_jax.types", "input_pipeline"),
    ),
    "vlc_jax.evaluate": ("vlc_jax", "input_pipeline"),
    "vlc_jax.watch": (
        *("vlc_jax.evaluate", "vlc_jax.setup", "vlc_jax.run", "vlc_jax.models"),
        *("vlc_jax.devices", "vlc_jax.errors", "input_pipeline.fetch"),
    ),
    "vlc_jax.first_state": (
        *("vlc_jax.setup", "vlc_jax.state", "vlc_jax.parameters", "vlc_jax.sharding"),
        "vlc_jax.run",
    ),
    "vlc_jax.batch_iterator": (
        *("vlc_jax.setup", "vlc_jax.train_step", "vlc_jax.sharding", "vlc_jax.run"),
        "input_pipeline",
    ),
    "vlc_jax.metrics_log": (
        *("vlc_jax.setup", "vlc_jax.devices", "vlc_jax.sharding", "vlc_jax.run"),
        "vlc_jax.errors",
    ),
    "vlc_jax.plan": (
        *("vlc_jax.setup", "vlc_jax.train_step", "vlc_jax.state", "vlc_jax.sharding"),
        *("vlc_jax.devices", "vlc_jax.errors", "vlc_jax.hlo", "vlc_jax.step_jaxpr"),
    ),
    "vlc_jax.step_jaxpr": (
        *("vlc_jax.setup", "vlc_jax.train_step", "vlc_jax.state", "vlc_jax.sharding"),
        *("vlc_jax.losses", "vlc_jax.encode"),
    ),
    "vlc_jax.train": ("vlc_jax", "input_pipeline"),
    "vlc_jax.tools": ("vlc_jax", "input_pipeline"),
    "vlc_jax.catalogue": (
        *("vlc_jax.losses", "vlc_jax.models", "vlc_jax.evaluators", "vlc_jax.errors"),
    ),
    "vlc_jax.main": (
        "vlc_jax.catalogue",
        *("vlc_jax.setup", "vlc_jax.train", "vlc_jax.evaluate", "vlc_jax.watch", "vlc_jax.plan"),
        "vlc_jax.devices",
        *("vlc_jax.errors", "vlc_jax.run", "vlc_jax.startup"),
        *("input_pipeline.record", "input_pipeline.stores", "input_pipeline.workers"),
    ),
    "vlc_jax.startup": ("vlc_jax.main",),
}
# Packages from outside that a room must not import, not even below another package of ours.
FORBIDDEN = {
    "input_pipeline": ("jax", "jaxlib", "flax", "optax", "orbax", "ml_collections", "tensorflow"),
    "vlc_jax.report": ("jax", "flax", "optax", "orbax", "ml_collections"),
    "vlc_jax.published": ("jax", "flax", "optax", "orbax", "ml_collections"),
    "configs": ("jax", "flax", "optax", "numpy"),
    "vlc_jax": ("torch", "tensorflow", "transformers", "open_clip", "peft"),
    "vlc_jax.weights": ("jax", "flax", "torch"),
}
# Scripts for another interpreter, which has the libraries that ours must do without.
ELSEWHERE = ("vlc_jax.tools.load_exported",)
ONLY_IN = {"orbax": "vlc_jax.run.checkpoint", "grain": "input_pipeline"}


# Words that only some modules may use, since what they stand for is decided there.
WORDS = {
    "ConfigDict": ("vlc_jax.main", "vlc_jax.setup", "vlc_jax.run.workdir"),
    "device": ("vlc_jax.devices", "vlc_jax.sharding"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str) -> set[str]:
    """Every module a file imports, `from a import b` counted as a.b (b may be a module)."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def room_of(name: str) -> str:
    return max((room for room in ROOMS if is_below(name, room)), key=len)


def violations(name: str, source: str) -> list[str]:
    room, broken = room_of(name), []
    for imported in imports(source):
        if imported.split(".")[0] in OURS:
            # `from vlc_jax import losses` is allowed to the rooms that may use vlc_jax.losses.
            allowed = (room, *ROOMS[room])
            if not any(is_below(imported, a) for a in allowed):
                broken.append(f"{name} imports {imported}; {room} may import only {allowed}")
        for prefix, packages in FORBIDDEN.items():
            is_here = is_below(name, prefix) and name not in ELSEWHERE
            if is_here and imported.split(".")[0] in packages:
                broken.append(f"{name} imports {imported}; {prefix} must not")
        owner = ONLY_IN.get(imported.split(".")[0])
        if owner and not is_below(name, owner):
            broken.append(f"{name} imports {imported}; only {owner} may")
    return broken


def words(source: str) -> set[str]:
    """Those of WORDS that a file uses: a name, or what JAX says of devices: attributes and names of
    its modules, the kind of one, those of an array and of a mesh."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name | ast.alias):
            name = node.id if isinstance(node, ast.Name) else node.name
            found |= {"ConfigDict"} & {name.rpartition(".")[2]}
        is_jax = isinstance(node, ast.Attribute) and ast.unparse(node.value).startswith("jax")
        if is_jax and "device" in node.attr:
            found.add("device")
        if isinstance(node, ast.Attribute):
            is_of_mesh = ast.unparse(node).endswith(".devices.flat")
            if node.attr in ("device_kind", "device_set") or is_of_mesh:
                found.add("device")
        of_jax = isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "jax"
        if of_jax and any("device" in alias.name.lower() for alias in node.names):
            found.add("device")
    return found


FILES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_keeps_to_its_room(path):
    name = module_name(path)
    direct = name if name.count(".") < 2 else ".".join(name.split(".")[:2])
    assert name in OURS or room_of(name) != "vlc_jax" or direct in ROOMS, f"{name} has no rule"
    assert violations(name, path.read_text()) == []
    for word in words(path.read_text()) if name.startswith("vlc_jax") else ():
        assert any(is_below(name, owner) for owner in WORDS[word]), f"{name} says {word}"


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("from ml_collections import ConfigDict", "ConfigDict"),
        ("def f(config: ml.ConfigDict | ConfigDict): ...", "ConfigDict"),
        ("x = jax.local_devices()", "device"),
        ("x = jax.device_put(y)", "device"),
        ("from jax import device_put as put", "device"),
        ("from jax.sharding import SingleDeviceSharding", "device"),
        ("kind = mesh.devices.flat[0]", "device"),
        ("x = found[0].device_kind", "device"),
        ("where = x.sharding.device_set", "device"),
    ],
)
def test_a_word_of_another_room_is_noticed(source, word):
    assert words(source) == {word}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("input_pipeline.loader", "import jax"),
        ("input_pipeline.loader", "from vlc_jax import types"),
        ("vlc_jax.models.vit", "from vlc_jax.losses import infonce"),
        ("vlc_jax.losses.infonce", "import vlc_jax.sharding"),
        ("vlc_jax.train", "import orbax.checkpoint as ocp"),
        ("vlc_jax.report.pages", "from vlc_jax import metrics"),
        ("configs.default", "from vlc_jax import train"),
        ("configs.common.heads", "def f():\n    from configs.scenes import negclip"),
    ],
)
def test_a_broken_rule_is_noticed(name, source):
    assert violations(name, source)


def test_configs_import_at_the_top_of_the_file():
    """An import inside a function would hide a circle."""
    for path in (ROOT / "configs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                inner = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
                assert not inner, f"{path}: {node.name} imports"
