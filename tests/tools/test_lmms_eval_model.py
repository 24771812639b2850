"""Our generative models as a model of lmms_eval, where it is installed."""

import ast
import importlib.metadata
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.support import helpers, llava_folder
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.record import Conversation

ENTRY_POINTS = tomllib.loads((helpers.ROOT / "pyproject.toml").read_text())["project"][
    "entry-points"
]["lmms_eval.models"]


def test_the_entry_point_names_a_function_that_is_there():
    ((name, value),) = ENTRY_POINTS.items()
    module, function = value.split(":")
    tree = ast.parse((helpers.ROOT / f"{module.replace('.', '/')}.py").read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert (name, function in names) == ("vlc_jax", True)
    # nothing of JAX: lmms_eval loads every entry point, whatever its model
    imported = [ast.unparse(node) for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert not [line for line in imported if "vlc_jax.encode" in line]


@pytest.fixture(scope="module")
def registry():
    pytest.importorskip("lmms_eval")
    from lmms_eval.models.registry_v2 import ModelRegistryV2

    class Registry(ModelRegistryV2):
        def _select_entry_points(self, group):
            entries = ENTRY_POINTS.items()
            return [importlib.metadata.EntryPoint(name, value, group) for name, value in entries]

    registry = Registry()
    registry.load_entrypoint_manifests()
    return registry


@pytest.fixture(scope="module")
def adapter(registry, tmp_path_factory):
    folder = tmp_path_factory.mktemp("llava")
    llava_folder.write(folder)
    model = registry.get_model_class("vlc_jax").create_from_arg_string(
        f"model={folder}", {"batch_size": 2, "max_batch_size": None, "device": "cuda:0"}
    )
    images = [Image.fromarray(picture) for picture in llava_folder.pictures(3)]
    model.task_dict = {"t": {"test": [{"image": image, "target": "red"} for image in images]}}
    return model


def requests(*arguments):
    def images_of(document):
        return [document["image"]]

    return [
        SimpleNamespace(args=(text, second, images_of, n, "t", "test"))
        for n, (text, second) in enumerate(arguments)
    ]


def test_answers_equal_the_loaded_models_up_to_the_first_end(adapter):
    options = {"max_new_tokens": 4, "temperature": 0, "do_sample": False, "top_p": None}
    questions = ["Is the figure red", "<image>\nDoes this show blue", "Please answer yes or no."]
    images = [document["image"] for document in adapter.task_dict["t"]["test"]]
    plain = [question.removeprefix("<image>\n") for question in questions]
    expected = adapter.model.answers(images, plain, max_tokens=4)
    found = adapter.generate_until(requests(*((each, options) for each in questions)))
    assert found == expected
    end = next(word for text in expected for word in text.split())
    cut = adapter.generate_until(requests(*((q, options | {"until": [end]}) for q in questions)))
    assert cut == [text.partition(end)[0] for text in expected]


def test_a_loss_is_the_mean_and_greedy_answers_are_known(adapter):
    image, question = adapter.task_dict["t"]["test"][0]["image"], "Is the figure red"
    (greedy,) = adapter.model.answers([image], [question], max_tokens=2)
    answers = ["red", "blue", greedy]
    asked = [SimpleNamespace(args=(question, f" {a}", lambda d: [d["image"]], 0, "t", "test"))
             for a in answers]  # fmt: skip
    found = adapter.loglikelihood(asked)
    texts = [Conversation.scored(question, answer) for answer in answers]
    np.testing.assert_allclose(
        [loss for loss, _ in found], -adapter.model.score([image], texts)[0], atol=1e-5
    )
    document_image = SimpleNamespace(
        args=(question, lambda d: d["target"], lambda d: [d["image"]], 0, "t", "test")
    )
    assert adapter.loglikelihood([document_image])[0][0] == pytest.approx(found[0][0], abs=1e-5)


def test_what_would_be_answered_wrongly_is_refused(adapter):
    with pytest.raises(UsageError, match=r"answers greedily; this task sets temperature=0\.7"):
        adapter.generate_until(requests(("Is it", {"temperature": 0.7})))
    two = SimpleNamespace(args=("Is it", {}, lambda d: [d["image"]] * 2, 0, "t", "test"))
    with pytest.raises(UsageError, match="one image per question; document 0 of t has Image, Im"):
        adapter.generate_until([two])
    with pytest.raises(UsageError, match="has several rounds"):
        adapter.generate_until_multi_round([])
