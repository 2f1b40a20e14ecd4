"""The model card beside a saved model: what it says is so, and its code block runs."""

import re

import pytest
import torch
from torch import nn

import hma
from hma.backbones import mlp
from hma.io.card import CARD

X, Y = torch.sin(torch.arange(60.0)).view(12, 5), torch.arange(12) % 3


class Plain(nn.Module):
    """A backbone of the user's own."""

    feature_dim = 8

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 8)

    def forward(self, x):
        return self.layer(x).tanh()


def default_model():
    model = hma.VotingMemory(
        mlp(5, hidden=(8,)), 3, hma.VoteConfig(slots_per_class=2, key_dim=4)
    ).eval()
    model.learn_memory([(X[:8], Y[:8])], held_out=[(X[8:], Y[8:])])
    return model


def paper_model():
    config = hma.HMAConfig(label_dim=4, queue_size=6, slots_per_class=2, num_heads=2)
    model = hma.HMA(Plain(), 3, config).eval()
    model.remember(X, Y, ids=torch.where(torch.arange(12) < 10, torch.arange(12), -1))
    return model


def number_model():
    keys = nn.Flatten()
    keys.feature_dim = 5
    return hma.VotingMemory(Plain(), target=hma.targets.Number(), key_encoder=keys).eval()


def param_model():
    return hma.HMA(Plain(), 3, hma.HMAConfig.ablation("param", num_heads=2)).eval()


MODELS = {
    "default": default_model,
    "paper": paper_model,
    "number": number_model,
    "param": param_model,
}


def facts_of(text):
    """Rows of the first table of a card."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return dict(line.strip("| ").split(" | ", 1) for line in lines)


@pytest.mark.parametrize("kind", MODELS)
def test_the_code_block_of_a_card_loads_the_model(kind, tmp_path, monkeypatch):
    model = MODELS[kind]()
    hma.save(model, tmp_path / "mine", card=True)
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "mine" / CARD).read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    keys = nn.Flatten()
    keys.feature_dim = 5
    around = {"backbone": mlp(5, hidden=(8,)) if kind == "default" else Plain()}
    around |= {"key_encoder": keys} if kind == "number" else {}
    exec(code, around)
    assert torch.equal(around["model"](X), model(X))


def test_a_card_says_what_the_model_holds(tmp_path):
    model = default_model()
    hma.save(model, tmp_path / "votes", card=True)
    facts = facts_of((tmp_path / "votes" / CARD).read_text())
    weights = sum(parameter.numel() for parameter in mlp(5, hidden=(8,)).parameters())
    assert facts["backbone"] == f"`hma.backbones.mlp.MLP`, {weights} weights"
    assert facts["features"] == "8"
    assert facts["answers"] == "one of 3 classes"
    assert facts["stored rows"] == "8 (one for each sample), 8 with the id of a sample"
    assert facts["slots"] == "6, 2 for each class"
    assert "keys of width 4" in facts["memory"]
    assert f"{model.memory_share:.0%} of the answer" in facts["memory"]
    assert facts["context"].startswith("`alone`")


def test_a_card_of_the_papers_design_names_heads_token_and_queue(tmp_path):
    hma.save(paper_model(), tmp_path / "paper", card=True)
    text = (tmp_path / "paper" / CARD).read_text()
    facts = facts_of(text)
    assert facts["memory"] == "the paper's: attention with 2 heads over tokens of width 12"
    assert facts["stored rows"] == "6 (of at most 6), 4 with the id of a sample"
    assert "An answer depends on the rows asked in the same batch" in text
    assert "features and labels of real samples" in text


def test_numbers_of_a_card_are_those_of_the_model_or_were_given(tmp_path):
    model = param_model()
    hma.save(model, tmp_path / "bare", card=True)
    text = (tmp_path / "bare" / CARD).read_text()
    learned = sum(parameter.numel() for parameter in model.parameters())
    assert set(re.findall(r"\d[\d,]*", text)) == {"48", "8", "3", f"{learned:,}"}
    assert "features and labels of real samples" not in text, "it stores none"


def test_what_is_given_stands_in_the_card_and_the_hub_reads_its_front_matter(tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason="pip install 'hma-torch[hub]'")
    model = default_model()
    card = hma.ModelCard(
        name="Digits",
        data="Twelve rows of a sine.",
        scores={"accuracy on 4 rows": 0.75, "a|b": "<b>"},
        license="apache-2.0",
        audit=hma.audit(model, X, Y),
        limits="Not for anything else.",
        backbone="from hma.backbones import mlp\n\nbackbone = mlp(5, hidden=(8,))",
        tags=["sine: wave"],
    )
    hma.save(model, tmp_path / "full", card=card)
    read = hub.ModelCard.load(tmp_path / "full" / CARD)
    assert read.data.library_name == "hma-torch"
    assert read.data.tags == ["hma", "memory", "sine: wave"]
    assert read.data.license == "apache-2.0"
    for said in ("# Digits", "Twelve rows", "| accuracy on 4 rows | 0.75 |", card.audit.verdict):
        assert said in read.text
    assert "| a\\|b | &lt;b> |" in read.text
    assert "Not for anything else." in read.text


def test_a_card_without_a_licence_names_none(tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason="pip install 'hma-torch[hub]'")
    hma.save(param_model(), tmp_path / "bare", card=True)
    read = hub.ModelCard.load(tmp_path / "bare" / CARD)
    assert read.data.license is None
    for title in ("Data", "Scores", "Does the model use its memory?"):
        assert f"## {title}" not in read.text


def test_a_block_with_its_backbone_runs_by_itself(tmp_path, monkeypatch):
    model = default_model()
    code = "from hma.backbones import mlp\n\nbackbone = mlp(5, hidden=(8,))"
    hma.save(model, tmp_path / "whole", card=hma.ModelCard(backbone=code))
    (block,) = re.findall(r"```python\n(.*?)```", (tmp_path / "whole" / CARD).read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(block, found)
    assert torch.equal(found["model"](X), model(X))


# ------------------------------------------------------------------------------- files


def test_a_card_of_ones_own_is_replaced_only_when_asked(tmp_path):
    model = param_model()
    (tmp_path / CARD).write_text("my words")
    with pytest.raises(FileExistsError, match=r"README.md exists already; pass overwrite=True"):
        hma.save(model, tmp_path, card=True)
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == [CARD], "nothing is saved"
    hma.save(model, tmp_path)
    assert (tmp_path / CARD).read_text() == "my words", "without card=True it is left alone"
    hma.save(model, tmp_path, card=True, overwrite=True)
    assert "hma.load" in (tmp_path / CARD).read_text()
    (tmp_path / CARD).write_text("edited by hand")
    assert torch.equal(hma.load(tmp_path, Plain())(X), model(X))


def test_a_save_that_fails_leaves_the_card_that_was_there(tmp_path, monkeypatch):
    before = param_model()
    hma.save(before, tmp_path, card=hma.ModelCard(name="before"))

    def fails(*args, **kwargs):
        raise OSError("no room")

    monkeypatch.setattr("hma.io.checkpoint.write_json", fails)
    with pytest.raises(OSError, match="no room"):
        hma.save(param_model(), tmp_path, overwrite=True, card=hma.ModelCard(name="after"))
    assert "# before" in (tmp_path / CARD).read_text()
    assert torch.equal(hma.load(tmp_path, Plain())(X), before(X))
    assert len(list(tmp_path.iterdir())) == 4, "card, manifest, weights, lock"


def test_a_card_that_is_no_card_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"card must be True, False or an hma.ModelCard, got dict"):
        hma.save(param_model(), tmp_path, card={"license": "mit"})
