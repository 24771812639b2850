"""Who may import whom: the rules of the house, checked on the syntax tree of every file.

A room is a file or folder one level below vlc_jax; configs and input_pipeline are two of them.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GROUND = ("types", "errors")  # and the contracts of the input pipeline: everybody imports them
CONTRACTS = tuple(f"vlc_jax.input_pipeline.{name}" for name in ("record", "batch", "case"))
PARTS = ("losses", "weights", "evaluators", "devices", "run")  # they never import each other
MODES = ("train", "evaluation", "encode", "plan")
# room -> the rooms that it may import beside GROUND and itself
RULES: dict[str, tuple[str, ...]] = {
    "types": (),
    "errors": (),
    "configs": (),
    "input_pipeline": (),
    **dict.fromkeys(PARTS, ("input_pipeline",)),
    "models": ("devices",),
    "setup": ("configs", "input_pipeline", "models", *PARTS),
    "encode": ("input_pipeline", "models", "setup", *PARTS),
    "evaluation": ("input_pipeline", "models", "setup", "encode", "report", *PARTS),
    "train": ("input_pipeline", "models", "setup", "evaluation", *PARTS),
    "plan": ("models", "setup", "encode", "train", *PARTS),
    "report": ("input_pipeline", "run"),
    "tools": ("configs", "input_pipeline", "models", "setup", "report", *MODES, *PARTS),
    "main": ("input_pipeline", "setup", "train", "evaluation", "plan", *PARTS),
    "__main__": ("", "main", "run"),
    "": ("encode", "evaluation"),  # vlc_jax.load, vlc_jax.evaluate
}
# The same for the folders of the input pipeline, whose contracts all of them import.
INPUT = "input_pipeline"
READS = ("images", "stores", "scenes", "lookup")
INPUT_RULES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("", "record", "batch", "case", "lookup", "record_validation"), ()),
    **dict.fromkeys(("images", "stores", "scenes"), ("lookup",)),
    "sources": READS,
    "tokenizers": (*READS, "sources"),
    "hard_texts": (*READS, "sources"),
    "loader": (*READS, "sources", "tokenizers", "hard_texts", "record_validation"),
    "benchmarks": (*READS, "sources", "hard_texts", "record_validation"),
    "commands": (*READS, "sources", "tokenizers", "hard_texts", "loader", "benchmarks",
                 "record_validation"),
}  # fmt: skip
# What a room must not import from outside.
JAX = ("jax", "jaxlib", "flax", "optax", "orbax", "ml_collections", "tensorflow")
FORBIDDEN = {
    "vlc_jax.input_pipeline": JAX,
    "vlc_jax.report": JAX,
    "vlc_jax.configs": (*JAX[:-2], "numpy"),
    "vlc_jax.weights": JAX,
    "vlc_jax": ("torch", "tensorflow", "transformers", "open_clip", "peft"),
}
# a script for an interpreter with torch; an optional tagger
ELSEWHERE = ("vlc_jax.tools.load_exported", "vlc_jax.input_pipeline.hard_texts.fill_mask")
ONLY_IN = {"orbax": "vlc_jax.run.checkpoint", "grain": "vlc_jax.input_pipeline"}
# Words that only some rooms may use, since what they stand for is decided there.
WORDS = {
    "ConfigDict": ("vlc_jax.configs", "vlc_jax.main", "vlc_jax.setup", "vlc_jax.run.workdir"),
    "device": ("vlc_jax.devices",),
}
# Numbers of the map: rooms, arrows between them, files that one import pulls in. An issue that adds
# a feature leaves them no worse.
LIMITS = {"vlc_jax": (18, 75), "vlc_jax.input_pipeline": (16, 65)}
CLOSURES = {"vlc_jax.train.step": 20, "vlc_jax.input_pipeline.case": 5, "vlc_jax.evaluators": 30}
# Packages that take a tenth of a second and more: no command imports them before it needs them.
SLOW = {"ftfy", "grain", "matplotlib", "orbax", "pyarrow", "scipy", "sklearn", "tokenizers"}
# Lines of Python of the product, the laboratory and the tests; words of the pages; files of product
# and laboratory that name a method, which is all that a person writes for it beside its test: the
# config, its record and, where it has one of its own, the loss or head. The pages that name it are
# generated. These numbers only fall: who adds says in the same commit what leaves.
LINES = {
    ("vlc_jax", "input_pipeline", "configs", "launch"): 80_949,
    ("studies", "speed"): 3_956,
    ("tests",): 66_180,
}
WORDS_OF_PAGES = 40_901
FILES_OF_METHODS = {"conclip": 3, "csclip": 4, "degla": 5}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "vlc_jax" else ("vlc_jax", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    module_name(path): path
    for folder in ("vlc_jax", "input_pipeline", "configs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not {"configs", "input_pipeline"} & {*path.relative_to(ROOT).parts[1:-1]}
}


def imports(source: str, *, is_start: bool = False) -> set[str]:
    """Every module a file imports, `from a import b` counted as a.b (b may be a module); none that
    only a type checker sees. is_start: none inside a function.
    """
    modules: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if is_start and isinstance(node, ast.FunctionDef):
            return
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return modules


def is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def room(name: str, package: str = "vlc_jax") -> str:
    """The room of a module of `package`; "" for the package itself."""
    return name.removeprefix(package).removeprefix(".").split(".")[0]


def broken_rules(name: str, source: str) -> list[str]:
    broken = []
    for imported in imports(source):
        top = imported.split(".")[0]
        if top in ("configs", INPUT):
            broken.append(f"{name} imports {top}, whose name is vlc_jax.{top}")
        if top == "vlc_jax" and not any(is_below(imported, each) for each in CONTRACTS):
            mine, other = room(name), room(imported)
            if other not in (mine, *GROUND, *RULES[mine]):
                broken.append(f"{name} imports {imported}; {mine} may import {RULES[mine]}")
            package = f"vlc_jax.{INPUT}"
            if mine == other == INPUT:
                mine, other = room(name, package), room(imported, package)
                if other not in (mine, *INPUT_RULES[mine]):
                    broken.append(f"{name} imports {imported}; not from {mine}")
        for prefix, packages in FORBIDDEN.items():
            if is_below(name, prefix) and name not in ELSEWHERE and top in packages:
                broken.append(f"{name} imports {imported}; {prefix} must not")
        if top in ONLY_IN and not is_below(name, ONLY_IN[top]):
            broken.append(f"{name} imports {imported}; only {ONLY_IN[top]} may")
    return broken


def words(source: str) -> set[str]:
    """The keys of WORDS that a file uses: as a name, or where JAX says it: attributes and names of
    its modules, the kind of a device, the devices of an array and of a mesh."""
    used = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name | ast.alias):
            name = node.id if isinstance(node, ast.Name) else node.name
            used |= {"ConfigDict"} & {name.rpartition(".")[2]}
        is_jax = isinstance(node, ast.Attribute) and ast.unparse(node.value).startswith("jax")
        if is_jax and "device" in node.attr:
            used.add("device")
        if isinstance(node, ast.Attribute):
            is_of_mesh = ast.unparse(node).endswith(".devices.flat")
            if node.attr in ("device_kind", "device_set") or is_of_mesh:
                used.add("device")
        of_jax = isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "jax"
        if of_jax and any("device" in alias.name.lower() for alias in node.names):
            used.add("device")
    return used


def imported_files(name: str, **options: bool) -> set[str]:
    """Modules of FILES that a module imports: of `from a import b`, b if it is one, else a."""
    modules = set()
    for each in imports(FILES[name].read_text(), **options):
        modules.add(each if each in FILES else each.rpartition(".")[0])
    return modules & FILES.keys()


def closure(name: str, **options: bool) -> set[str]:
    """The files that the import of a module pulls in."""
    seen, waiting = set(), [name]
    while waiting:
        module = waiting.pop()
        if module not in seen and module != "vlc_jax":
            seen.add(module)
            parent = {module.rpartition(".")[0]} & FILES.keys()
            waiting += [*imported_files(module, **options), *parent]
    return seen


@pytest.mark.parametrize("name", FILES)
def test_file_keeps_to_its_room(name):
    source = FILES[name].read_text()
    assert broken_rules(name, source) == []
    for word in words(source):
        assert any(is_below(name, owner) for owner in WORDS[word]), f"{name} says {word}"


@pytest.mark.parametrize("package", LIMITS)
def test_the_map_is_no_larger_and_has_no_circle(package):
    arrows = set()
    for name in FILES:
        if is_below(name, package):
            inside = (each for each in imported_files(name) if is_below(each, package))
            arrows |= {(room(name, package), room(each, package)) for each in inside}
    arrows = {(a, b) for a, b in arrows if a != b and (package != "vlc_jax" or b != INPUT)}
    if package == "vlc_jax":  # the two folders beside it have maps of their own
        arrows = {(a, b) for a, b in arrows if not {a, b} & {INPUT, "configs"}}
    rooms = {room(name, package) for name in FILES if is_below(name, package)}
    rooms -= {INPUT, "configs"} if package == "vlc_jax" else set()
    assert (len(rooms), len(arrows)) <= LIMITS[package], (len(rooms), len(arrows))
    assert len(arrows) <= LIMITS[package][1]
    while rooms:  # take away the rooms that import no other; a circle has none
        ground = {each for each in rooms if not any(a == each and b in rooms for a, b in arrows)}
        assert ground, f"a circle among {sorted(rooms)}"
        rooms -= ground


@pytest.mark.parametrize("name", CLOSURES)
def test_what_one_import_pulls_in(name):
    seen = closure(name)
    assert len(seen) <= CLOSURES[name], sorted(seen)


@pytest.mark.parametrize("name", ["vlc_jax.main", "vlc_jax.tools.score", "vlc_jax.encode.load"])
def test_a_command_starts_without_slow_packages(name):
    files = closure(name, is_start=True)
    used = {file: imports(FILES[file].read_text(), is_start=True) for file in files}
    slow = {file: {each.partition(".")[0] for each in names} & SLOW for file, names in used.items()}
    assert not any(slow.values()), {file: names for file, names in slow.items() if names}


def files_in(*folders: str, suffixes: tuple[str, ...]) -> list[Path]:
    paths = (path for each in folders for path in sorted((ROOT / each).rglob("*")))
    return [path for path in paths if path.suffix in suffixes and path.is_file()]


@pytest.mark.parametrize("folders", LINES, ids=" ".join)
def test_lines_are_no_more(folders):
    lines = sum(
        len(path.read_text().splitlines()) for path in files_in(*folders, suffixes=(".py",))
    )
    assert lines <= LINES[folders], lines


def test_words_of_pages_are_no_more():
    pages = [*files_in("docs", suffixes=(".md",)), *ROOT.glob("*.md")]
    count = sum(len(path.read_text().split()) for path in pages)
    assert count <= WORDS_OF_PAGES, count


@pytest.mark.parametrize("method", FILES_OF_METHODS)
def test_a_method_is_named_in_few_files(method):
    folders = ("vlc_jax", "input_pipeline", "configs", "studies", "speed")
    paths = files_in(*folders, suffixes=(".py", ".jinja"))
    naming = [path for path in paths if re.search(rf"(?<!\w){method}(?!\w)", path.read_text())]
    assert len(naming) <= FILES_OF_METHODS[method], naming


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
        ("vlc_jax.input_pipeline.loader.loader", "import jax"),
        ("vlc_jax.input_pipeline.loader.loader", "from vlc_jax import setup"),
        ("vlc_jax.input_pipeline.scenes.draw", "from vlc_jax.input_pipeline import sources"),
        ("vlc_jax.input_pipeline.record", "import input_pipeline"),
        ("vlc_jax.models.vit", "from vlc_jax.losses import infonce"),
        ("vlc_jax.losses.infonce", "import vlc_jax.devices.sharding"),
        ("vlc_jax.train.loop", "import orbax.checkpoint as ocp"),
        ("vlc_jax.train.loop", "from vlc_jax import main"),
        ("vlc_jax.report.pages", "from vlc_jax.setup import resolve"),
        ("vlc_jax.configs.default", "from vlc_jax.train import loop"),
        ("vlc_jax.configs.common.heads", "def f():\n    from vlc_jax.weights import files"),
    ],
)
def test_a_broken_rule_is_noticed(name, source):
    assert broken_rules(name, source)


def test_configs_import_at_the_top_of_the_file():
    """An import inside a function would hide a circle."""
    for path in (ROOT / "configs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                inner = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
                assert not inner, f"{path}: {node.name} imports"
