"""What the command asks for each preset, and the files that it writes."""

import json

from tests.support import helpers
from tests.support.chat_runs import CAPTIONS, ask, hound, positives, summary, words
from tests.support.chat_server import completes, says, serving
from vlc_jax.input_pipeline.commands import write_hard_texts as command
from vlc_jax.input_pipeline.hard_texts.llm import prompts
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS


def test_a_plain_text_is_sent_with_its_stops_and_its_answer_read(tmp_path, captions):
    def answer(caption, n):
        return completes(f" {caption.replace('dog', 'hound')}")

    with serving(answer) as server:
        options = ("--form", "text", "--concurrency", "1")
        assert command.main(words(captions, tmp_path / "hp", server.url, *options)) == 0
        arguments = words(captions, tmp_path / "hp", server.url)
        assert command.main(arguments) == 2  # a request of the other form
    body = server.requests[0][1]
    assert body["prompt"] == prompts.fill(PRESETS["replace"].prompt, CAPTIONS[0])
    assert "messages" not in body
    assert body["stop"] == ["\n"]
    assert positives(tmp_path / "hp") == [caption.replace("dog", "hound") for caption in CAPTIONS]


def test_a_preset_is_asked_with_its_own_sampling(tmp_path, captions):
    with serving(lambda *_: says("1. a dog")) as server:
        for preset in ("dac_dense", "c2lip_phrases"):
            arguments = words(captions, tmp_path / preset, server.url, "--limit", "1", kind=preset)
            assert command.main(arguments) == 0
    bodies = [body for _, body in server.requests]
    sent = [(body["max_tokens"], body["temperature"], body.get("top_p")) for body in bodies]
    assert sent == [(400, 1.0, 1.0), (100, 0.0, None)]
    assert not any("stop" in body for body in bodies)  # a chat ends by itself


def test_a_version_names_prompt_model_and_sampling(tmp_path, captions):
    """Texts with the same name were made alike, whatever the endpoint and the captions."""
    other = tmp_path / "other.txt"
    other.write_text("a horse\n")
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Say it otherwise.\nInput: {caption}\n")
    runs = {
        "first": (captions, ()),
        "others": (other, ("--concurrency", "2")),
        "model": (captions, ("--model", "small")),
        "prompt": (captions, ("--prompt", str(prompt))),
        "sampling": (captions, ("--temperature", "0")),
        "seed": (captions, ("--seed", "1")),
    }
    versions, kinds = {}, {}
    with serving(hound) as server:
        for name, (file, options) in runs.items():
            out = tmp_path / "runs" / name
            assert command.main(words(file, out, server.url, *options)) == 0
            versions[name] = summary(out)["version"]
            kinds[name] = {row["positive_kinds"] for row in helpers.rows(out / "table.jsonl")}
    assert all(version.startswith("replace/") for version in versions.values())
    assert versions["first"] == versions.pop("others")
    assert len({*versions.values()}) == 5
    assert all(kinds[name] == {version} for name, version in versions.items())


def test_the_table_has_the_texts_of_each_row_in_the_order_of_its_captions(tmp_path):
    images = [{"id": 1, "file_name": "1.jpg"}, {"id": 2, "file_name": "2.jpg"}]
    order = [(2, "dog b"), (1, "dog a"), (2, "dog c")]
    entries = [{"id": k, "image_id": i, "caption": text} for k, (i, text) in enumerate(order)]
    path = tmp_path / "captions.json"
    path.write_text(json.dumps({"images": images, "annotations": entries}))
    table = tmp_path / "captions.jsonl"
    table.write_text(
        '{"caption": ["dog b", ""]}\n{"image": "1.jpg", "size": 3, "caption": "dog a"}\n'
    )
    with serving(hound) as server:
        assert command.main(words(path, tmp_path / "coco", server.url)) == 0
        assert command.main(words(table, tmp_path / "table", server.url)) == 0
    one, two = helpers.rows(tmp_path / "coco" / "table.jsonl")
    assert (one["id"], one["image"], one["caption"]) == ("1", "1.jpg", ["dog a"])
    assert (two["caption"], two["positives"]) == (["dog b", "dog c"], [["hound b"], ["hound c"]])
    assert one["positives"] == ["hound a"]
    assert positives(tmp_path / "coco") == ["hound b", "hound a", "hound c"]  # of the annotations
    one, two = helpers.rows(tmp_path / "table" / "table.jsonl")
    assert (one["positives"], two["positives"], two["size"]) == ([["hound b"], []], ["hound a"], 3)


def test_a_column_that_would_be_written_over_is_refused_before_anything_is_asked(
    tmp_path, captions, capsys
):
    out = tmp_path / "hp"
    with serving(hound) as server:
        assert command.main(words(captions, out, server.url)) == 0
        assert command.main(words(out / "table.jsonl", tmp_path / "again", server.url)) == 2
    assert "already has a column 'positives'" in capsys.readouterr().err
    assert sum(server.asked.values()) == 12
    assert not (tmp_path / "again").exists()


def test_unusable_answers_are_shown_in_the_summary(tmp_path, captions):
    said = {CAPTIONS[1]: "I'm sorry, I can't do that.", CAPTIONS[4]: CAPTIONS[4]}
    said |= dict.fromkeys(CAPTIONS[6:], "None " * 1000)

    def answer(caption, n):
        return says(said[caption]) if caption in said else hound(caption, n)

    ask(answer, captions, "--concurrency", "1")
    told = summary(tmp_path / "hp")
    assert told["missing"] == {"too long": 6, "refusal": 1, "same as the caption": 1}
    shown = told["unusable_answers"]
    assert {reason: len(examples) for reason, examples in shown.items()} == {
        "too long": 3,
        "refusal": 1,
        "same as the caption": 1,
    }
    expected = {"line": 2, "caption": CAPTIONS[1], "answer": said[CAPTIONS[1]]}
    assert shown["refusal"] == [expected]
    assert max(len(each["answer"]) for each in shown["too long"]) == 200


def test_a_limit_is_for_trying_and_a_later_run_goes_on(tmp_path, captions):
    out = tmp_path / "hp"
    with serving(hound) as server:
        assert command.main(words(captions, out, server.url, "--limit", "5")) == 0
        assert (len(positives(out)), summary(out)["complete"]) == (5, False)
        assert command.main(words(captions, out, server.url)) == 0
        assert (len(positives(out)), summary(out)["complete"]) == (12, True)
        assert command.main(words(captions, out, server.url, "--limit", "5")) == 0
        assert len(positives(out)) == 12
    assert server.asked == dict.fromkeys(CAPTIONS, 1)
