"""Image classifiers of Hugging Face's transformers: the processor's arithmetic is put before the model."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import captum.attr as ca
import numpy as np
import pytest
import torch
from small_transformers import relate_slowly, roll_out_slowly
from torch import Tensor, nn

import standfast
from standfast import zoo
from standfast.errors import ArgumentError, MissingExtraError, ModelError, StandfastError
from standfast.study.file.spec import study_from

MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
PROCESSOR: dict[str, Any] = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 16, "width": 16},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": MEAN,
    "image_std": STD,
}


class StandIn(nn.Module):
    """A stand-in with the interface of a model of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(3 * 256, 5)

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> SimpleNamespace:
        if pixel_values.shape[2:] != (16, 16):
            raise ValueError(
                f"Input image size {tuple(pixel_values.shape[2:])} doesn't match model (16, 16)."
            )
        return SimpleNamespace(logits=self.classifier(pixel_values.flatten(1)))


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def test_the_processors_arithmetic_is_put_before_the_model() -> None:
    torch.manual_seed(0)
    network, x = StandIn(), rand(4, 3, 16, 16)
    mean, std = torch.tensor(MEAN).reshape(3, 1, 1), torch.tensor(STD).reshape(3, 1, 1)
    for processor, expected in (
        (PROCESSOR, (x - mean) / std),
        (SimpleNamespace(**PROCESSOR), (x - mean) / std),
        (PROCESSOR | {"rescale_factor": 1 / 127.5}, (2 * x - mean) / std),
        (PROCESSOR | {"do_rescale": False}, (255 * x - mean) / std),
        (PROCESSOR | {"do_normalize": False}, x),
    ):
        model = standfast.zoo.from_transformers(network, processor, device="cpu")
        torch.testing.assert_close(
            model.logits(x), network(expected).logits.detach(), rtol=1e-4, atol=1e-4
        )
    assert model.module.input_size == (3, 16, 16)
    assert (model.bounds[0].item(), model.bounds[1].item()) == (0.0, 1.0)
    cropped = PROCESSOR | {"do_center_crop": True, "crop_size": {"height": 12, "width": 10}}
    assert standfast.zoo.from_transformers(network, cropped).module.input_size == (3, 12, 10)
    edge = PROCESSOR | {"size": {"shortest_edge": 16}}
    assert standfast.zoo.from_transformers(network, edge).module.input_size is None
    with pytest.raises(
        ModelError, match=r"expected images of shape \(N, 3, 16, 16\), got .* doesn't match model"
    ):
        model.logits(rand(2, 3, 8, 8))
    with pytest.raises(
        ArgumentError, match="processor: expected an image processor with image_std"
    ):
        standfast.zoo.from_transformers(network, {"image_mean": MEAN})
    with pytest.raises(ArgumentError, match="as many numbers"):
        standfast.zoo.from_transformers(network, {"image_mean": MEAN, "image_std": [1.0]})


def transformers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny vision transformer with random weights."""
    package = transformers()
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
    }
    config = package.ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = package.ViTForImageClassification(config)
    folder = tmp_path_factory.mktemp("hub") / "vit"
    package.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    package.utils.logging.enable_progress_bar()
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return folder


def test_a_vision_transformer_from_its_folder(vit: Path) -> None:
    """Its logits for 8-bit images equal those of the package."""
    package = transformers()
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    state = torch.random.get_rng_state()
    module = zoo.load(f"transformers:{vit}")
    assert torch.equal(state, torch.random.get_rng_state())
    assert module.input_size == (3, 16, 16)
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    processor = package.AutoImageProcessor.from_pretrained(vit)
    network = package.AutoModelForImageClassification.from_pretrained(vit).eval()
    with torch.no_grad():
        expected = network(**processor(list(images), return_tensors="pt")).logits
    torch.testing.assert_close(model.logits(x), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        standfast.zoo.from_transformers(network, processor, device="cpu").logits(x),
        expected,
        rtol=1e-4,
        atol=1e-5,
    )
    gradients = standfast.explainers.get("saliency", absolute=False)(model, x, 2)
    leaf = (
        (x - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)
    ).requires_grad_(True)
    (outside,) = torch.autograd.grad(network(pixel_values=leaf).logits[:, 2].sum(), leaf)
    torch.testing.assert_close(
        gradients, outside / torch.tensor(STD).reshape(3, 1, 1), rtol=1e-3, atol=1e-6
    )


def test_random_weights_need_only_the_configuration(vit: Path, tmp_path: Path) -> None:
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text((vit / name).read_text())
    with pytest.raises(StandfastError, match="its weights cannot be loaded"):
        zoo.load(f"transformers:{tmp_path}")
    x = rand(2, 3, 16, 16)
    with torch.no_grad():
        torch.rand(1)
        drawn = zoo.load(f"transformers:{tmp_path}", pretrained=False)(x)
        # its weights were drawn with the same seed
        assert torch.equal(drawn, zoo.load(f"transformers:{vit}")(x))


def test_a_study_takes_a_model_in_its_folder(vit: Path, tmp_path: Path) -> None:
    (tmp_path / "hub_photos.py").write_text(
        "import torch\ndef load():\n    return torch.rand(2, 3, 16, 16)\n"
    )
    (tmp_path / "mine").symlink_to(vit)
    study = {
        "data": {"noise": {"function": "hub_photos:load"}},
        "models": {"vit": "transformers:mine"},
        "explainers": ["saliency"],
        "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.05}, "samples": 2}}],
        "controls": False,
        "sanity": False,
    }
    found = standfast.run_study(study_from(study, tmp_path), tmp_path / "results", progress=False)
    assert found.failures == []
    assert found.manifest["models"]["vit"]["name"] == "transformers:mine"


def test_weights_that_cannot_be_loaded(
    vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = transformers()
    with pytest.raises(StandfastError, match="its weights cannot be loaded"):
        zoo.load(f"transformers:{tmp_path / 'nowhere' / 'at' / 'all'}")
    other = tmp_path / "bert"
    package.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1).save_pretrained(
        other
    )
    (other / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    with pytest.raises(ArgumentError, match="model: expected an image classifier of transformers"):
        zoo.load(f"transformers:{other}")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"standfast\[hub\]"):
        zoo.load(f"transformers:{vit}")


# explainers of attention


SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
SIZES |= {"num_labels": 4, "initializer_range": 0.4}  # attention that is far from uniform
OF_IMAGES = {"ViT": "ViTForImageClassification", "DeiT": "DeiTForImageClassification"}
OF_IMAGES |= {"DeiT, two tokens": "DeiTForImageClassificationWithTeacher"}
EXPLAINERS = ("attention_rollout", "attention_relevance")


def make_of_images(name: str, attention: str) -> Any:
    config = getattr(transformers(), f"{name.partition(',')[0]}Config")
    torch.manual_seed(0)
    config = config(image_size=8, patch_size=4, attn_implementation=attention, **SIZES)
    return getattr(transformers(), OF_IMAGES[name])(config).eval()


def make_of_texts(name: str, attention: str) -> zoo.EmbeddedText:
    torch.manual_seed(0)
    if name == "BERT":
        config = transformers().BertConfig(vocab_size=30, attn_implementation=attention, **SIZES)
        return zoo.TransformersText(transformers().BertForSequenceClassification(config).eval())
    config = transformers().GPT2Config(
        vocab_size=30, n_embd=16, n_layer=2, n_head=2, num_labels=4, pad_token_id=0
    )
    config._attn_implementation = attention
    return zoo.TransformersText(transformers().GPT2ForSequenceClassification(config).eval())


def explain_slowly(out: Any, deciding: list[int]) -> tuple[Tensor, ...]:
    """Rollout and relevance of all tokens, from the weights that a model returns for one input."""
    gradients = [own[0].numpy() for own in torch.autograd.grad(out.logits[0, 1], out.attentions)]
    weights = [own[0].detach().numpy() for own in out.attentions]
    slow = roll_out_slowly(weights), relate_slowly(weights, gradients)
    return tuple(torch.from_numpy(matrix[deciding].mean(0)).float() for matrix in slow)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_attention_of_image_models(name: str) -> None:
    """Fused, against the weights that the same network returns with attention written out."""
    network, x = make_of_images(name, "sdpa"), rand(2, 3, 8, 8)
    model = standfast.Model(
        network, (0.0, 1.0), device="cpu", forward=lambda module, x: module(x).logits
    )
    maps = [
        standfast.explainers.get(kind, interpolation="nearest")(model, x, 1) for kind in EXPLAINERS
    ]
    eager, special = make_of_images(name, "eager"), 1 if name == "ViT" else 2
    for i in range(2):
        out = eager(x[i : i + 1], output_attentions=True)
        for found, slow in zip(
            maps, explain_slowly(out, [0, 1] if "two" in name else [0]), strict=True
        ):
            torch.testing.assert_close(
                found[i, 0, ::4, ::4], slow[special:].reshape(2, 2), rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("name", ["BERT", "GPT2"])
def test_attention_of_text_models(name: str) -> None:
    """BERT decides by its first token, GPT-2 by its last; the sum over the embedding is a token's relevance."""
    text, eager = make_of_texts(name, "sdpa"), make_of_texts(name, "eager").model
    ids = torch.randint(1, 30, (2, 6), generator=torch.Generator().manual_seed(0))
    if name == "BERT":
        ids[1, 4:] = 0
    x = text.embed(ids)
    model = standfast.Model(text, text.bounds())
    maps = [zoo.token_relevance(standfast.explainers.get(kind)(model, x, 1)) for kind in EXPLAINERS]
    for i in range(2):
        given = {
            "inputs_embeds": x[i : i + 1].transpose(1, 2),
            "attention_mask": text.present(x[i : i + 1]).long(),
        }
        out = eager(**given, output_attentions=True)
        for found, slow in zip(
            maps, explain_slowly(out, [0] if name == "BERT" else [5]), strict=True
        ):
            torch.testing.assert_close(found[i], slow, rtol=1e-5, atol=1e-6)
            assert (found[i][ids[i] == 0] == 0).all()  # padding gets nothing
    cam = standfast.explainers.get("gradcam", relu=False)
    layer = "bert.encoder.layer.0.output.LayerNorm" if name == "BERT" else "transformer.h.1.ln_1"
    assert torch.equal(
        cam(model, x, 1), dataclasses.replace(cam, layer=f"model.{layer}")(model, x, 1)
    )


def test_integrated_gradients_by_embeddings_equal_captum() -> None:
    """With the tokens of the text present on the whole path, from the embedding of the padding."""
    text = make_of_texts("BERT", "sdpa")
    model, ids = (
        text.model,
        torch.randint(1, 30, (2, 6), generator=torch.Generator().manual_seed(0)),
    )
    ids[1, 4:] = 0

    def forward(ids: Tensor, present: Tensor) -> Tensor:
        return model(ids, attention_mask=present).logits

    captum = ca.LayerIntegratedGradients(forward, model.bert.embeddings.word_embeddings)
    options = {"target": 1, "n_steps": 8, "additional_forward_args": (ids != 0).long()}
    expected = captum.attribute(ids, torch.zeros_like(ids), **options).sum(2)
    explainer = standfast.explainers.get("integrated_gradients", steps=8, baseline=text.baseline())
    found = zoo.token_relevance(explainer(standfast.Model(text, text.bounds()), text.embed(ids), 1))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert (found[1, 4:] == 0).all()


def test_gradcam_of_swin_takes_the_last_normalisation_before_the_last_attention() -> None:
    torch.manual_seed(0)
    sizes = {
        "image_size": 16,
        "patch_size": 2,
        "embed_dim": 8,
        "depths": [1, 2],
        "num_heads": [2, 2],
    }
    network = (
        transformers()
        .SwinForImageClassification(transformers().SwinConfig(window_size=2, **sizes))
        .eval()
    )
    model = standfast.Model(
        network, (0.0, 1.0), device="cpu", forward=lambda module, x: module(x).logits
    )
    x, found = rand(2, 3, 16, 16), []
    # of a grid of 4 x 4, as (N, 16, K)
    layer = network.swin.encoder.layers[1].blocks[1].layernorm_before
    layer.register_forward_hook(lambda own, args, out: found.append(out))
    score = network(x.clone().requires_grad_(True)).logits[:, 1].sum()
    (gradient,) = torch.autograd.grad(score, found[0])
    slow = (found[0] * gradient.mean(1, keepdim=True)).sum(2).reshape(2, 1, 4, 4).expand(2, 3, 4, 4)
    maps = standfast.explainers.get("gradcam", relu=False, interpolation="nearest")(model, x, 1)
    torch.testing.assert_close(maps[..., ::4, ::4], slow, rtol=1e-4, atol=1e-7)
    for name in EXPLAINERS:
        with pytest.raises(
            ModelError, match="got attention within 16 windows of each input in layer 1 of 3"
        ):
            standfast.explainers.get(name)(model, x, 1)


@pytest.mark.parametrize("name", ["ViT", "Swin", "BERT"])
def test_relevance_by_rules_does_not_depend_on_how_attention_is_written(name: str) -> None:
    """AttnLRP and, where attention is that of whole inputs, transformer attribution."""
    found = []
    for attention in ("eager", "sdpa"):
        if name == "BERT":
            text = make_of_texts(name, attention)
            x = text.embed(torch.tensor([[3, 5, 2, 7], [4, 8, 0, 0]]))
            model = standfast.Model(text, text.bounds())
        else:
            x = rand(2, 3, 8, 8)
            options = {
                "depths": [2],
                "num_heads": [2],
                "window_size": 2,
                "initializer_range": 0.4,
                "num_labels": 4,
            }
            swin = transformers().SwinConfig(
                image_size=8, patch_size=2, embed_dim=4, attn_implementation=attention, **options
            )
            torch.manual_seed(0)
            network = (
                transformers().SwinForImageClassification(swin)
                if name == "Swin"
                else make_of_images(name, attention)
            )
            model = standfast.Model(
                network, (0.0, 1.0), device="cpu", forward=lambda own, x: own(x).logits
            )
        found.append(standfast.explainers.get("attn_lrp")(model, x, 1))
        with model.session():
            _, logits = standfast.explainers.get("attn_lrp").attribute(model, x, None)
        torch.testing.assert_close(logits, model.logits(x), rtol=1e-5, atol=1e-5)
        if name == "BERT":
            assert not found[-1][1, :, 2:].any()  # padding gets nothing
    one, other = found
    scale = float(one.abs().max())
    assert scale > 1e-4
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * scale)


# texts


SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_labels": 3,
}
SMALL |= {"intermediate_size": 24, "initializer_range": 0.5, "pad_token_id": 0}
DECODER = SMALL | {"num_key_value_heads": 1}
OF_TEXTS: dict[str, dict[str, Any]] = {
    "Bert": SMALL,
    "Electra": SMALL | {"embedding_size": 8},
    "Roberta": SMALL | {"max_position_embeddings": 20},  # positions are counted without padding
    "Esm": SMALL
    # weights of embeddings depend on the mask
    | {
        "max_position_embeddings": 20,
        "mask_token_id": 1,
    },
    "Longformer": SMALL | {"attention_window": 4, "max_position_embeddings": 20},  # pads on its own
    "XLNet": {
        "vocab_size": 40,
        "d_model": 16,
        "n_layer": 2,
        "n_head": 2,
        "d_inner": 24,
        "pad_token_id": 0,
        "num_labels": 3,
    },
    "GPT2": {
        "vocab_size": 40,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "num_labels": 3,
        "pad_token_id": 0,
    },
    "OPT": SMALL | {"ffn_dim": 24, "word_embed_proj_dim": 16, "max_position_embeddings": 20},
    "Llama": DECODER,
    "Qwen2": DECODER,
    "Gemma": DECODER | {"head_dim": 8},  # its layer scales the embeddings
}
BATCHES = {
    "padding at the end": [[4, 8, 15, 16, 23, 2], [7, 9, 11, 0, 0, 0], [5, 0, 0, 0, 0, 0]],
    "padding at the beginning": [[4, 8, 15, 16, 23, 2], [0, 0, 0, 7, 9, 11], [0, 0, 0, 0, 0, 5]],
    "tokens left out": [[4, 0, 15, 16, 0, 2], [7, 0, 11, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
    "one text": [[4, 8, 15, 16]],
}


def make_text_model(name: str, **options: Any) -> Any:
    package = transformers()
    config = getattr(package, f"{name}Config")(**OF_TEXTS[name] | options)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(package, f"{name}ForSequenceClassification")(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("name", OF_TEXTS)
def test_logits_of_embeddings_are_those_of_token_ids(name: str) -> None:
    model = make_text_model(name).train()
    text = zoo.TransformersText(model, padding=0)
    assert model.training
    model.eval()
    for case, ids in BATCHES.items():
        tokens = torch.tensor(ids)
        with torch.no_grad():
            expected = model(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
            x = text.embed(tokens)
            assert torch.equal(text(x), expected), case
            # within the bounds
            found = standfast.Model(text, text.bounds(), device="cpu").logits(x)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not model.get_input_embeddings()._forward_hooks
    assert torch.equal(copy.deepcopy(text)(x), text(x))
    assert torch.equal(pickle.loads(pickle.dumps(text))(x), text(x))


def test_gradients_of_a_decoder_are_those_of_its_own_embeddings() -> None:
    """And padding, which the model does not read, has none."""
    model, tokens, outputs = (
        make_text_model("Llama"),
        torch.tensor(BATCHES["padding at the end"]),
        [],
    )
    hook = model.get_input_embeddings().register_forward_hook(
        lambda layer, args, out: outputs.append(out)
    )
    model(input_ids=tokens, attention_mask=(tokens != 0).long()).logits[:, 1].sum().backward(
        inputs=outputs
    )
    hook.remove()
    text = zoo.TransformersText(model)
    explainer = standfast.explainers.get("saliency", absolute=False)
    maps = explainer(standfast.Model(text, text.bounds()), text.embed(tokens), 1)
    torch.testing.assert_close(maps, outputs[0].grad.transpose(1, 2), rtol=1e-4, atol=1e-6)
    assert bool((maps.transpose(1, 2)[tokens == 0] == 0).all())


@pytest.mark.parametrize("name", ["Bert", "Electra", "Longformer"])
def test_pairs_of_sentences(name: str) -> None:
    network = make_text_model(name, type_vocab_size=2)
    text = zoo.TransformersText(network)
    tokens = torch.tensor([[4, 8, 15, 16, 23, 2], [7, 9, 11, 2, 0, 0]])
    types = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1]])  # those of padding say nothing
    with torch.no_grad():
        own = network(
            input_ids=tokens, attention_mask=(tokens != 0).long(), token_type_ids=types
        ).logits
        single = network(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
    assert not torch.allclose(own, single, atol=1e-2)
    x = text.embed(tokens, token_types=types)
    assert torch.equal(text.present(x), tokens != 0)
    model = standfast.Model(text, text.bounds(margin=1.0), device="cpu")
    torch.testing.assert_close(model.logits(x), own, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.logits(text.embed(tokens)), single, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        text.embed(tokens, token_types=torch.zeros_like(tokens)), text.embed(tokens)
    )
    for wrong in (types + 1, types - 1, types[:, :3], types.float()):
        with pytest.raises(
            ArgumentError,
            match=r"token_types: expected whole numbers from 0 to 1 of shape \(2, 6\)",
        ):
            text.embed(tokens, token_types=wrong)


def test_another_padding_than_the_models_own() -> None:
    """The model sees the id that it knows."""
    model = make_text_model("GPT2")
    text = zoo.TransformersText(model, padding=5)
    tokens = torch.tensor([[4, 8, 15], [7, 0, 0]])
    with torch.no_grad():
        expected = model(
            input_ids=tokens, attention_mask=torch.tensor([[1, 1, 1], [1, 0, 0]])
        ).logits
        assert torch.equal(text(text.embed(tokens.masked_fill(tokens == 0, 5))), expected)


@pytest.mark.parametrize("name", ["XLNet", "GPT2"])
def test_token_types_that_are_not_added_are_refused(name: str) -> None:
    text = zoo.TransformersText(make_text_model(name))
    with pytest.raises(ArgumentError, match=f"token_types: expected None for {name}"):
        text.embed(torch.tensor([[4, 8]]), token_types=torch.tensor([[0, 1]]))


def test_text_models_that_say_something_else_of_embeddings() -> None:
    for padding in (None, 0):
        with pytest.raises(
            ModelError, match=r"GPT2ForSequenceClassification .* config\.pad_token_id"
        ):
            zoo.TransformersText(make_text_model("GPT2", pad_token_id=None), padding=padding)
    package = transformers()
    sizes = {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
    }
    heads = {
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    bart = package.BartForSequenceClassification(
        package.BartConfig(vocab_size=40, **sizes, **heads)
    )
    with pytest.raises(ModelError, match=r"BartForSequenceClassification .* EmbeddedText"):
        zoo.TransformersText(bart)
    with pytest.raises(ArgumentError, match="model: expected a sequence classifier"):
        zoo.TransformersText(make_text_model("GPT2").score)
    # of a model that reads an id elsewhere, the first batches are compared as they are
    text = zoo.TransformersText(make_text_model("Bert"))
    text.model.register_forward_hook(
        lambda model, args, kwargs, out: SimpleNamespace(
            logits=out.logits + (kwargs.get("input_ids", out.logits) == 3).any()
        ),
        with_kwargs=True,
    )
    text.embed(torch.tensor([[4, 8]]))
    with pytest.raises(ModelError, match="logits that differ by 1"):
        text.embed(torch.tensor([[4, 3, 0]]))
