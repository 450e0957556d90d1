"""Changes of studies of texts: of networks and tokenizers, of language models, of code of the user's, of a study file.

The tokenizers know the words of the texts whole, so that most of their changes act on words that searches write.
"""

from __future__ import annotations

from changes import AGAIN, NAMED, NOTHING, RUN_STUDY, WITHOUT_EFFECT, Change, Expected, Scene, edit

# A network and a tokenizer of the user's

NET = """
import os

import torch
from torch import nn

import scale_of_mine
from tools_of_mine import squash

LIMIT = 1.0

class Bag(nn.Module):
    factor = 1.0

    def __init__(self, power=1.0):
        super().__init__()
        self.words, self.head = nn.Embedding(200, 8), nn.Linear(8, 2)
        self.power = power
        self.register_buffer("shift", torch.zeros(2), persistent=False)

    def forward(self, ids, present):
        from late_of_mine import ADD
        weights = present * torch.where(ids >= 60, LIMIT, 1.0)  # pieces of words
        bag = squash((self.words(ids) * weights[..., None]).sum(1)) * scale_of_mine.SCALE
        out = self.head(bag) * self.factor * self.power + self.shift
        out = out * torch.tensor([1.0, 1.0 + ADD])
        is_rare = (ids == int(os.environ.get("TOKEN_OF_FEW", "-1"))).any(1)
        return torch.where(is_rare[:, None], -out, out)

def build():
    torch.manual_seed(0)
    return Bag().eval()
"""
TOKENIZER = """
import string

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

def make_tokenizer(texts, pieces=None, **options):
    letters = [*string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase)]
    words = sorted({word for text in texts for word in text.split()})
    places = [f"[unused{number}]" for number in range(60)]
    entries = ["[UNK]", "[PAD]", "[MASK]", *words]
    entries += places[: 60 - len(entries)]
    entries += letters if pieces is None else pieces(letters)
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(entries))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", **options))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(pad_id=1, pad_token="[PAD]")
    return tokenizer
"""
SCRIPT = """
import torch
import standfast
from standfast.metrics import MaxSensitivity, WorstCase
from standfast.neighbourhoods import Casing, Compose, Deletion, TokenSwaps, Typos
from net_of_mine import Bag, build
from tokenizer_of_mine import *

TEXTS = [
    "the film was a great and moving story",
    "a dull plot and some very boring actors",
    "what a lovely little picture of the sea",
]
tokenizer, network, options = make_tokenizer(TEXTS), build(), {}
# what follows
model = standfast.TextModel(network, tokenizer, **options)
around = Typos(rate=0.4)
metrics = {"w": WorstCase(around, similarity="cosine", budget=20), "m": MaxSensitivity(around, samples=6), "a": "aopc"}
found = standfast.evaluate(
    model, ["occlusion"], TEXTS, metrics, sanity=False, controls=False, progress=False
)
"""
NET_FILES = {
    "script.py": SCRIPT,
    "net_of_mine.py": NET,
    "tokenizer_of_mine.py": TOKENIZER,
    "scale_of_mine.py": "SCALE = 1.0\n",
    "tools_of_mine.py": "def squash(bag):\n    return bag.tanh()\n",
    "late_of_mine.py": "ADD = 0.0\n",
    "nobody_imports.py": "VALUE = 1\n",
}


def before_model(lines: str, expected: Expected = AGAIN) -> Change:
    """What is done with tokenizer, network and options before a model is made of them."""
    return edit(NET_FILES, "script.py", "# what follows", lines, expected)


def edit_script(old: str, new: str, expected: Expected = AGAIN) -> Change:
    """A change of the script."""
    return edit(NET_FILES, "script.py", old, new, expected)


def edit_net(old: str, new: str) -> Change:
    """A change of the module of the network."""
    return edit(NET_FILES, "net_of_mine.py", old, new)


def make_tokenizer(arguments: str) -> Change:
    """The tokenizer is made with other arguments."""
    return before_model(f"tokenizer = make_tokenizer(TEXTS, {arguments})")


TOKENIZER_CHANGES = {
    "other pieces": make_tokenizer("lambda letters: letters[::-1]"),
    "a piece less": make_tokenizer(
        "lambda letters: [letter for letter in letters if letter != '##e']"
    ),
    "a piece more": make_tokenizer(
        "lambda letters: [*letters, '##ea', '##ry', '##ie', '##ng', '##tt', '##ll']"
    ),
    "how long words are that it knows": make_tokenizer("max_input_chars_per_word=5"),
    "how pieces are marked": make_tokenizer('continuing_subword_prefix="@@"'),
    "small letters": before_model("tokenizer.normalizer = normalizers.Replace('q', 'k')"),
    "where it splits": before_model(
        "tokenizer.pre_tokenizer = pre_tokenizers.Split('e', 'isolated')"
    ),
    "a token more": before_model(
        "tokenizer.add_tokens(['##q', 'flim', 'stroy', 'dul', 'atcors', 'te', 'teh'])"
    ),
    "a special token more": before_model("tokenizer.add_special_tokens(['ee', 'oo', 'tt', 'll'])"),
    "how many tokens it reads": before_model("tokenizer.enable_truncation(9)"),
    "tokens around each text": before_model(
        "tokenizer.post_processor = processors.TemplateProcessing("
        "single='[MASK] $A [UNK]', special_tokens=[('[MASK]', 2), ('[UNK]', 0)])"
    ),
    "two words exchange their numbers": before_model(
        "old = make_tokenizer\n"
        "tokenizer = old([text.replace('sea', 'zea') for text in TEXTS])\n"
        "tokenizer.add_tokens(['sea'])"
    ),
    "a merge of pairs": before_model(
        "alphabet = {letter: number + 3 for number, letter in enumerate(string.ascii_lowercase + ' ')}\n"
        "tokenizer = Tokenizer(models.BPE({'[UNK]': 0, '[PAD]': 1, '[MASK]': 2, **alphabet, 'th': 40}, [('t', 'h')]))\n"
        "tokenizer.enable_padding(pad_id=1, pad_token='[PAD]')"
    ),
    # without effect
    "it was used before": before_model("tokenizer.encode_batch(TEXTS)", NOTHING),
    "it was stored and read": before_model(
        "tokenizer = Tokenizer.from_str(tokenizer.to_str())", NOTHING
    ),
    "on which side it pads": before_model(
        "tokenizer.enable_padding(direction='left', pad_id=1, pad_token='[PAD]')", NOTHING
    ),
    "it was made by another object": before_model(
        "tokenizer = make_tokenizer(list(TEXTS))", NOTHING
    ),
}
NETWORK_CHANGES = {
    "a constant of its module, for pieces of words": edit_net("LIMIT = 1.0", "LIMIT = 0.5"),
    "an attribute of its class": edit_net("factor = 1.0", "factor = 2.0"),
    "a default": edit_net("power=1.0", "power=2.0"),
    "the text of forward": edit_net(
        "* self.power", "* (self.power + (ids >= 60).sum(1, keepdim=True))"
    ),
    "what it imports": edit(NET_FILES, "scale_of_mine.py", "1.0", "2.0"),
    "a function that it imports": edit(
        NET_FILES, "tools_of_mine.py", "bag.tanh()", "bag.sigmoid()"
    ),
    "what it imports late": edit(NET_FILES, "late_of_mine.py", "0.0", "0.5"),
    "an attribute": before_model("network.power = 2.0"),
    "a buffer that is not stored": before_model("network.shift[0] = 0.5"),
    "a weight of a piece that no text has": before_model("network.words.weight.data[70, 0] += 1.0"),
    "the last digit of a bias": before_model("network.head.bias.data += torch.tensor([1e-6, 0.0])"),
    "a hook": before_model(
        "network.head.register_forward_hook(lambda layer, inputs, out: out * 2)"
    ),
    "a hook for pieces of words": before_model(
        "network.words.register_forward_hook(lambda layer, ids, out: out * (1 + (ids[0] >= 60)[..., None]))"
    ),
    "a forward that is replaced": before_model(
        "plain = network.forward\nnetwork.forward = lambda ids, present: plain(ids, present) * 2"
    ),
    "a part of another kind": before_model(
        "network.head = torch.nn.Sequential(network.head, torch.nn.Tanh())"
    ),
    "a subclass in the script": before_model(
        "class Mine(Bag):\n"
        "    def forward(self, ids, present):\n"
        "        return super().forward(ids, present) * (1 + (ids >= 60).any(1, keepdim=True))\n"
        "torch.manual_seed(0)\n"
        "network = Mine().eval()"
    ),
    "a seed": edit_net("manual_seed(0)", "manual_seed(1)"),
    "a variable of the environment, for a piece of words": Change(
        {}, AGAIN, {"TOKEN_OF_FEW": "64"}
    ),
    "a variable of the environment, for few pieces": Change({}, NAMED, {"TOKEN_OF_FEW": "85"}),
    # without effect
    "weights that are not trained any more": before_model("network.requires_grad_(False)", NOTHING),
    "a gradient": before_model(
        "network(torch.tensor([[3, 4]]), torch.ones(1, 2, dtype=torch.bool)).sum().backward()",
        NOTHING,
    ),
    "it was copied": before_model("import copy\nnetwork = copy.deepcopy(network)", NOTHING),
    "print options": before_model("torch.set_printoptions(precision=2)", NOTHING),
    "the random state of the process": before_model("torch.manual_seed(5)", NOTHING),
    "a function of the script that nothing uses": before_model(
        "def other(text):\n    return text", NOTHING
    ),
    **WITHOUT_EFFECT,
}
CALL_CHANGES = {
    "a word of a text": edit_script("a great and", "a fine and"),
    "a letter of a text": edit_script("a great and", "a Great and"),
    "a mark behind a text": edit_script("moving story", "moving story !"),
    "a text less": edit_script('    "a dull plot and some very boring actors",\n', ""),
    "what is removed": before_model('options = {"removal": "delete"}'),
    "what is explained": before_model('options = {"granularity": "sentence"}'),
    "the task": before_model('options = {"task": "multi_label"}'),
    "the rate of typos": edit_script("rate=0.4", "rate=0.2"),
    "which words may be wrong": edit_script("rate=0.4", "rate=0.4, shortest=6"),
    "the change": edit_script("Typos(rate=0.4)", "Casing(rate=0.4)"),
    "two changes": edit_script("Typos(rate=0.4)", "Compose([Typos(rate=0.4), Deletion(rate=0.2)])"),
    "a table of words": edit_script(
        "Typos(rate=0.4)", 'TokenSwaps(table={"dull": ["boring"], "film": ["story"]})'
    ),
    "the budget": edit_script("budget=20", "budget=7"),
    "the similarity": edit_script('"cosine"', '"kendall"'),
    "the explainer": edit_script('"occlusion"', '"kernel_shap:samples=10"'),
    "gradients": edit_script('"occlusion"', '"input_x_gradient"'),
    "the targets": edit_script("progress=False", "progress=False, targets=1"),
    "the seed": edit_script("progress=False", "progress=False, seed=1"),
    "blanks around a text": edit_script('"the film', '"  the film', NOTHING),
}

# Code of the user's beside a bundled model

MINE = """
import os
from dataclasses import dataclass
import standfast
from standfast.metrics import MaxSensitivity, WorstCase
from standfast.neighbourhoods import TokenSwaps
from standfast.neighbourhoods.text import TextChange
from standfast.similarity import Similarity
from explain_of_mine import explain
from tables_of_mine import read_table

ENDS = ["x", "yy"]

@dataclass(frozen=True)
class Ends(TextChange):
    def describe(self):
        return "other ends"
    def candidates(self, word):
        return [word[:-1] + end for end in ENDS] if len(word) > 3 else []

@dataclass(frozen=True)
class Share(Similarity):
    name = "share"
    low, high, range = 0.4, 0.6, (0.0, 1.0)
    def compare(self, a, b):
        from late_of_mine import POWER
        a, b = a.abs().flatten(1) ** POWER + 1e-6, b.abs().flatten(1) ** POWER + 1e-6
        return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1)) * float(os.environ.get("SHARE_OF_MINE", "1"))

model = standfast.TextModel(standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors())
texts = ["a great film about the sea", "dull actors in a boring story"]
swaps = TokenSwaps(table=read_table(), rate=0.5)
metrics = {
    "swaps": WorstCase(swaps, similarity=Share(), budget=12),
    "ends": MaxSensitivity(Ends(rate=0.5), samples=6),
}
found = standfast.evaluate(
    model, {"mine": explain}, texts, metrics, sanity=False, controls=False, progress=False
)
"""
EXPLAIN = """
import standfast
from factors_of_mine import FACTOR

BASE = 1.0

def explain(predict, texts, classes):
    scores = predict(texts)
    rows = zip(texts, classes, scores)
    return [
        [BASE + len(word.text) * FACTOR * float(score[int(kind)]) for word in standfast.texts.split_words(text)]
        for text, kind, score in rows
    ]
"""
TABLE = """
def read_table():
    return {"great": ["good", "fine"], "dull": ["boring"], "film": ["movie"], "actors": ["players"]}
"""
MINE_FILES = {
    "script.py": MINE,
    "explain_of_mine.py": EXPLAIN,
    "factors_of_mine.py": "FACTOR = 1.0\n",
    "late_of_mine.py": "POWER = 1.0\n",
    "tables_of_mine.py": TABLE,
}
MINE_CHANGES = {
    "a constant of an explainer": edit(
        MINE_FILES, "explain_of_mine.py", "BASE = 1.0", "BASE = 3.0"
    ),
    "the text of an explainer": edit(
        MINE_FILES, "explain_of_mine.py", "len(word.text)", "len(word.text) ** 2"
    ),
    "what an explainer imports": edit(MINE_FILES, "factors_of_mine.py", "1.0", "9.0"),
    "what a similarity imports late": edit(MINE_FILES, "late_of_mine.py", "1.0", "2.0"),
    "a variable of the environment that a similarity reads": Change(
        {}, NAMED, {"SHARE_OF_MINE": "0.5"}
    ),
    "a table that a function returns": edit(
        MINE_FILES, "tables_of_mine.py", '"movie"', '"picture"'
    ),
    "a constant of a change": edit(MINE_FILES, "script.py", '["x", "yy"]', '["xxx", "yyyy"]'),
    "the text of a change": edit(MINE_FILES, "script.py", "word[:-1] + end", "word[:-2] + end"),
    "a weight": edit(
        MINE_FILES,
        "script.py",
        "texts =",
        "list(model.model.parameters())[-1].data[0] += 0.5\ntexts =",
    ),
    "nothing": WITHOUT_EFFECT["nothing"],
    "the folder is moved": WITHOUT_EFFECT["the folder is moved"],
}

# A study file with a folder of transformers

STUDY = """
samples: 2
samples_per_job: 2
sanity: false
controls: false
data: {reviews: {path: reviews.csv, text: review}}
models: {m: {transformers: folder-of-mine}}
explainers: [occlusion]
metrics:
  - worst_case: {budget: 10, similarity: cosine}
  - max_sensitivity: {samples: 4}
neighbourhood: {typos: {rate: 0.4}}
"""
MAKE = """
import json, string
from pathlib import Path
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

letters = [*string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase)]
words = "the film was a great moving story dull plot and boring actors".split()
vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[MASK]", *words, *letters])}
tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
tokenizer.normalizer = normalizers.Lowercase()
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
fast = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]", model_max_length=32
)
torch.manual_seed(0)
sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
config = BertConfig(vocab_size=100, max_position_embeddings=32, num_labels=2, initializer_range=0.5, **sizes)
network = BertForSequenceClassification(config).eval()
network.save_pretrained("folder-of-mine")
fast.save_pretrained("folder-of-mine")
Path("folder-of-mine/README.md").write_text("a card")
reviews = ["review,label", "The film was a great moving story,1", "A dull plot and boring actors,0"]
Path("reviews.csv").write_text("\\n".join(reviews))

def change_json(name, change):
    path = Path("folder-of-mine", name)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
"""
STUDY_FILES = {
    "make.py": MAKE,
    "study.yaml": STUDY,
    "script.py": RUN_STUDY,
    "nobody_imports.py": "VALUE = 1\n",
}


def edit_study(old: str, new: str, expected: Expected = AGAIN) -> Change:
    """A change of the study file."""
    return edit(STUDY_FILES, "study.yaml", old, new, expected)


def remake(lines: str, expected: Expected = AGAIN) -> Change:
    """The files are made again, and something is done with them."""
    return Change({"make.py": f"{MAKE}\n{lines}\n"}, expected)


STUDY_CHANGES = {
    "the pieces in tokenizer.json": edit(
        STUDY_FILES, "make.py", "*words, *letters", "*words, *letters[::-1]"
    ),
    "small letters in tokenizer.json": edit(
        STUDY_FILES, "make.py", "tokenizer.normalizer = normalizers.Lowercase()", ""
    ),
    "the length in tokenizer_config.json": remake(
        "change_json('tokenizer_config.json', lambda content: content.update(model_max_length=5))"
    ),
    "a layer in config.json": remake(
        "change_json('config.json', lambda content: content.update(hidden_act='relu'))"
    ),
    "the weights": edit(STUDY_FILES, "make.py", "manual_seed(0)", "manual_seed(1)"),
    "one weight": edit(
        STUDY_FILES,
        "make.py",
        "network.save",
        "network.classifier.bias.data[0] = 0.1\nnetwork.save",
    ),
    "a text of the table": edit(STUDY_FILES, "make.py", "great moving", "moving"),
    "the column of texts": Change(
        {
            "make.py": MAKE
            + 'Path("reviews.csv").write_text("review,other\\na,The great film\\nb,A dull story\\n")\n',
            "study.yaml": STUDY.replace("text: review", "text: other"),
        }
    ),
    "labels": edit_study("text: review", "text: review, label: label, targets: labels"),
    "what is removed": edit_study(
        "transformers: folder-of-mine", "transformers: folder-of-mine, removal: delete"
    ),
    "what is explained": edit_study("folder-of-mine", "folder-of-mine, granularity: sentence"),
    "the rate": edit_study("rate: 0.4", "rate: 0.2"),
    "a function in its place": Change(
        {
            "study.yaml": STUDY.replace(
                "transformers: folder-of-mine", 'function: "build_of_mine:build"'
            ),
            "build_of_mine.py": "import standfast\ndef build():\n"
            "    network = standfast.zoo.load('transformer-sentences')\n"
            "    return standfast.TextModel(network, standfast.data.word_vectors())\n",
        }
    ),
    # without effect
    "the README of the folder": Change({"folder-of-mine/README.md": "another card\n"}, NOTHING),
    "a licence in the folder": Change({"folder-of-mine/LICENSE": "a licence\n"}, NOTHING),
    "attributes of git in the folder": Change(
        {"folder-of-mine/.gitattributes": "*.bin filter=lfs\n"}, NOTHING
    ),
    "the folder is stored again": remake("", NOTHING),
    "a title": edit_study("samples: 2\n", "title: another\nsamples: 2\n", NOTHING),
    "a column that nothing reads": remake(
        'Path("reviews.csv").write_text(Path("reviews.csv").read_text().replace(",1", ",7"))',
        NOTHING,
    ),
    **WITHOUT_EFFECT,
}

# Language models

LANGUAGE = """
import string
import torch
import standfast
from standfast.metrics import MaxSensitivity, WorstCase
from standfast.neighbourhoods import Typos
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

letters = [*string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase)]
words = "is it good ? answer yes no maybe the film was a great moving story dull plot".split()
vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words, *letters])}
tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64)
torch.manual_seed(0)
sizes = dict(n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
config = GPT2Config(vocab_size=100, initializer_range=0.5, **sizes)
network = GPT2LMHeadModel(config).eval()
# what follows
model = standfast.CausalModel(network, fast, labels=("yes", "no"), template="{text} is it good ? answer")
texts = ["the film was a great story", "the plot was a dull one"]
typos = Typos(rate=0.4)
metrics = {"w": WorstCase(typos, similarity="cosine", budget=12), "m": MaxSensitivity(typos, samples=4)}
found = standfast.evaluate(model, ["occlusion"], texts, metrics, sanity=False, controls=False, progress=False)
"""
LANGUAGE_FILES = {"script.py": LANGUAGE}


def edit_language(old: str, new: str, expected: Expected = AGAIN) -> Change:
    """A change of the script."""
    return edit(LANGUAGE_FILES, "script.py", old, new, expected)


LANGUAGE_CHANGES = {
    "another label": edit_language('("yes", "no")', '("yes", "maybe")'),
    "the template": edit_language("{text} is it good ?", "{text} good ?"),
    "a word before the text": edit_language('"{text} is', '"answer {text} is'),
    "the number of heads": edit_language("n_head=2", "n_head=4"),
    "the activation": edit_language("n_head=2", 'n_head=2, activation_function="relu"'),
    "one weight": edit_language("# what follows", "network.lm_head.weight.data[4] *= 1.1"),
    "the pieces": edit_language("*words, *letters", "*words, *letters[::-1]"),
    "on which side texts are cut": edit_language(
        "model_max_length=64", "model_max_length=9, truncation_side='left'"
    ),
    "a sampling option, with which nothing is drawn": edit_language(
        "# what follows", "network.generation_config.temperature = 0.3", NOTHING
    ),
    "the name of the tokenizer": edit_language(
        "# what follows", "fast.name_or_path = 'another-place'", NOTHING
    ),
    "nothing": WITHOUT_EFFECT["nothing"],
}


def list_scenes() -> dict[str, Scene]:
    """All studies by name."""
    return {
        "a tokenizer": Scene(NET_FILES, TOKENIZER_CHANGES),
        "a network": Scene(NET_FILES, NETWORK_CHANGES),
        "a call": Scene(NET_FILES, CALL_CHANGES),
        "code of the user's": Scene(MINE_FILES, MINE_CHANGES),
        "a study file": Scene(STUDY_FILES, STUDY_CHANGES),
        "a language model": Scene(LANGUAGE_FILES, LANGUAGE_CHANGES),
    }
