"""Architectures of torchvision and transformers at their usual sizes, as `.onnx` and `.pt2` files.

    python bench/torch_models.py FOLDER [NAME ...]

The files are for `compare_models.py`.  Weights are drawn from a fixed seed.  The batch, and the
length of a text, are open dimensions: ``--dim batch=8 --dim length=512`` gives them.  Needs torch,
torchvision, transformers and onnxscript.  What is there already is not made again.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

IMAGE = 224
BATCH = torch.export.Dim("batch", max=64)
LENGTH = torch.export.Dim("length", min=2, max=512)


def main() -> None:
    folder, *names = sys.argv[1:]
    warnings.filterwarnings("ignore")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, (make, inputs, axes) in MODELS.items():
        path = Path(folder) / f"{name}.onnx"
        if (names and name not in names) or path.exists():
            continue
        torch.manual_seed(0)
        module = make().eval()
        keep_sizes(module)
        shapes = tuple(axes for _ in inputs)
        program = torch.export.export(module, inputs, dynamic_shapes=(shapes,), strict=False)
        torch.export.save(program, str(path.with_suffix(".pt2")))
        torch.onnx.export(program, (), str(path), external_data=False, verbose=False)
        name_dimensions(path, axes)
        print(f"{name}: {path.stat().st_size >> 20} MiB", flush=True)


def name_dimensions(path: Path, axes: dict[int, Any]) -> None:
    """Give open dimensions the names that `--dim` takes; torch numbers them."""
    model = onnx.load(path)
    dims = [value.type.tensor_type.shape.dim for value in model.graph.input]
    names = {shape[i].dim_param: axis.__name__ for shape in dims for i, axis in axes.items()}
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_param = names[dim.dim_param]
    onnx.save(model, path)


def keep_sizes(module: nn.Module) -> None:
    """Draw weights so that activations keep their size from layer to layer: the initial ones of
    some architectures are nearly 0, so that a difference of results means nothing."""
    generator = torch.Generator().manual_seed(1)
    for each in module.modules():
        if isinstance(each, nn.Linear) and not each.weight.any():
            nn.init.normal_(each.weight, std=0.02, generator=generator)
        if isinstance(each, nn.modules.conv._ConvNd):
            nn.init.kaiming_normal_(each.weight, nonlinearity="relu", generator=generator)
        elif isinstance(each, nn.modules.batchnorm._BatchNorm):
            assert each.running_mean is not None
            assert each.running_var is not None
            each.running_mean.copy_(0.1 * torch.randn(each.num_features, generator=generator))
            each.running_var.copy_(0.5 + torch.rand(each.num_features, generator=generator))


class Inputs(nn.Module):
    """A module that takes the inputs of another one by name, and returns one of its outputs."""

    def __init__(self, module: nn.Module, inputs: tuple[str, ...], output: str, **fixed: Any):
        super().__init__()
        self.module = module
        self.inputs = inputs
        self.output = output
        self.fixed = fixed

    def forward(self, *args: torch.Tensor) -> Any:
        found = self.module(**dict(zip(self.inputs, args, strict=True)), **self.fixed)
        return found[self.output]


class Images(nn.Module):
    """A network of torchvision with one result."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *args: torch.Tensor) -> Any:
        found = self.module(*args)
        return found["out"] if isinstance(found, dict) else found


Entry = tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...], dict[int, Any]]


def images(name: str, **options: Any) -> Entry:
    def make() -> nn.Module:
        from torchvision import models

        kind = models.segmentation if name in ("lraspp_mobilenet_v3_large",) else models
        if name.startswith("lraspp"):
            options["weights_backbone"] = None
        return Images(getattr(kind, name)(weights=None, **options))

    return make, (torch.zeros(2, 3, IMAGE, IMAGE),), {0: BATCH}


def video() -> Entry:
    def make() -> nn.Module:
        from torchvision import models

        return Images(models.video.r3d_18(weights=None))

    return make, (torch.zeros(2, 3, 8, 112, 112),), {0: BATCH}


def texts(kind: str, config: str, masked: bool = True, **sizes: Any) -> Entry:
    """An encoder or a decoder without caches, of four layers unless `sizes` says otherwise."""

    def make() -> nn.Module:
        import transformers

        module = getattr(transformers, kind)(getattr(transformers, config)(**sizes))
        is_decoder = kind in ("GPT2Model", "LlamaModel")
        fixed = {"use_cache": False} if is_decoder else {}
        names = ("input_ids", "attention_mask")[: 1 + masked]
        return Inputs(module, names, "last_hidden_state", **fixed)

    tokens = torch.ones(2, 16, dtype=torch.int64)
    return make, (tokens, tokens)[: 1 + masked], {0: BATCH, 1: LENGTH}


def whisper() -> Entry:
    def make() -> nn.Module:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6,
                               encoder_ffn_dim=1536)  # fmt: skip
        return Inputs(WhisperEncoder(config), ("input_features",), "last_hidden_state")

    return make, (torch.zeros(2, 80, 3000),), {0: BATCH}


BASE: dict[str, Any] = {"num_hidden_layers": 4, "vocab_size": 8000}
MODELS: dict[str, Entry] = {
    "tv_resnet50": images("resnet50"),
    "tv_mobilenet_v3_large": images("mobilenet_v3_large"),
    "tv_efficientnet_b0": images("efficientnet_b0"),
    "tv_convnext_tiny": images("convnext_tiny"),
    "tv_swin_t": images("swin_t"),
    "tv_vit_b_32": images("vit_b_32"),
    "tv_densenet169": images("densenet169"),
    "tv_squeezenet1_1": images("squeezenet1_1"),
    "tv_regnet_y_800mf": images("regnet_y_800mf"),
    "tv_shufflenet_v2_x1_0": images("shufflenet_v2_x1_0"),
    "tv_mnasnet1_0": images("mnasnet1_0"),
    "tv_googlenet": images("googlenet", aux_logits=False, init_weights=False),
    "tv_resnext50_32x4d": images("resnext50_32x4d"),
    "tv_lraspp": images("lraspp_mobilenet_v3_large"),
    "tv_r3d_18": video(),
    "hf_bert": texts("BertModel", "BertConfig", **BASE),
    "hf_distilbert": texts("DistilBertModel", "DistilBertConfig", n_layers=4, vocab_size=8000),
    "hf_albert": texts("AlbertModel", "AlbertConfig", **BASE, hidden_size=768,
                       num_attention_heads=12, intermediate_size=3072),
    "hf_gpt2": texts("GPT2Model", "GPT2Config", n_layer=4, vocab_size=8000),
    "hf_llama": texts("LlamaModel", "LlamaConfig", **BASE, hidden_size=768,
                      num_attention_heads=12, num_key_value_heads=4, intermediate_size=2048),
    "hf_t5_encoder": texts("T5EncoderModel", "T5Config", num_layers=4, vocab_size=8000),
    "hf_whisper_encoder": whisper(),
}  # fmt: skip


if __name__ == "__main__":
    with torch.no_grad():
        main()
