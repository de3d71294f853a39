"""Architectures at reduced size with drawn weights, as PyTorch, torchvision and transformers have
them.

Each function returns a `Case`: the module, its inputs, and inputs of other sizes with the axes that
are symbolic when the module is exported with dynamic shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch import nn

__all__ = ["MODELS", "Case", "drawn"]


class Case(NamedTuple):
    """A module to export.

    Attributes:
        module: in eval mode.
        args: its inputs.
        dynamic: the axes of each input that vary, as ``torch.export.export`` takes them; None if
            the module is exported with fixed shapes alone.
        others: inputs of other sizes, if `dynamic` is given.
    """

    module: nn.Module
    args: tuple[Any, ...] = ()
    dynamic: Any = None
    others: tuple[Any, ...] = ()


MODELS: Final[dict[str, Callable[[], Case]]] = {}
AUTO: Final = torch.export.Dim.AUTO


def model(function: Callable[[], Case]) -> Callable[[], Case]:
    """Decorator: list an architecture."""
    MODELS[function.__name__.rstrip("_")] = function
    return function


def drawn(name: str) -> Case:
    """The case of a name, with weights and statistics of normalizations drawn from a fixed seed."""
    torch.manual_seed(0)
    case = MODELS[name]()
    case.module.eval()
    generator = torch.Generator().manual_seed(1)
    for module in case.module.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            mean, variance = module.running_mean, module.running_var
            if mean is not None and variance is not None:
                mean.copy_(0.1 * torch.randn(mean.shape, generator=generator))
                variance.copy_(0.5 + torch.rand(variance.shape, generator=generator))
    return case


def image(size: int = 64, batch: int = 2, channels: int = 3) -> torch.Tensor:
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(size))


def tokens(*shape: int, below: int = 100) -> torch.Tensor:
    return torch.randint(1, below, shape, generator=torch.Generator().manual_seed(sum(shape)))


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _torchvision() -> Any:
    """torchvision; also where its compiled part does not fit, for its models in Python."""
    if "torchvision" not in _OPENED:
        try:
            import torchvision
        except RuntimeError:
            library = torch.library.Library("torchvision", "DEF")
            for schema in _SCHEMAS:
                library.define(schema)
            _OPENED["library"] = library
            import torchvision
        _OPENED["torchvision"] = torchvision
    return _OPENED["torchvision"]


_OPENED: Final[dict[str, Any]] = {}
_SCHEMAS: Final = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    *[f"{name}(Tensor input) -> Tensor" for name in (
        "_roi_align_backward", "ps_roi_align", "_ps_roi_align_backward", "roi_pool",
        "_roi_pool_backward", "ps_roi_pool", "_ps_roi_pool_backward", "qroi_align", "deform_conv2d",
        "_deform_conv2d_backward",
    )],
)  # fmt: skip
"""Operators of the compiled part that torchvision expects while it is imported."""


def _vision(build: Callable[[Any], nn.Module], size: int = 64, varies: bool = True) -> Case:
    models = _torchvision().models
    return Case(
        build(models),
        (image(size),),
        dynamic=({0: AUTO, 2: AUTO, 3: AUTO} if varies else {0: AUTO},),
        others=(image(size + 32, 3) if varies else image(size, 5),),
    )


_torchvision()  # transformers import it, too

# torchvision


@model
def resnet18() -> Case:
    return _vision(lambda m: m.ResNet(m.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10))


@model
def resnet50() -> Case:
    return _vision(lambda m: m.ResNet(m.resnet.Bottleneck, [1, 1, 1, 1], num_classes=10))


@model
def mobilenet_v2() -> Case:
    return _vision(lambda m: m.mobilenet_v2(width_mult=0.25, num_classes=10))


@model
def mobilenet_v3() -> Case:
    return _vision(lambda m: m.mobilenet_v3_small(num_classes=10, width_mult=0.5))


@model
def efficientnet() -> Case:
    def build(m: Any) -> nn.Module:
        config = m.efficientnet.MBConvConfig
        fused = m.efficientnet.FusedMBConvConfig
        setting = [fused(1, 3, 1, 16, 16, 1), config(4, 3, 2, 16, 24, 2),
                   config(4, 5, 2, 24, 40, 1)]  # fmt: skip
        net: nn.Module = m.EfficientNet(setting, dropout=0.2, num_classes=10, last_channel=64)
        return net

    return _vision(build)


@model
def convnext() -> Case:
    def build(m: Any) -> nn.Module:
        block = m.convnext.CNBlockConfig
        net: nn.Module = m.ConvNeXt([block(16, 32, 1), block(32, None, 2)], num_classes=10)
        return net

    return _vision(build)


@model
def swin() -> Case:
    return _vision(
        lambda m: m.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10),
        varies=False,
    )


@model
def swin_v2() -> Case:
    def build(m: Any) -> nn.Module:
        s = m.swin_transformer
        net: nn.Module = s.SwinTransformer(
            [4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10, block=s.SwinTransformerBlockV2,
            downsample_layer=s.PatchMergingV2,
        )  # fmt: skip
        return net

    return _vision(build, varies=False)


@model
def vit() -> Case:
    return _vision(
        lambda m: m.VisionTransformer(64, 16, 2, 4, 32, 64, num_classes=10), varies=False
    )


@model
def maxvit() -> Case:
    return _vision(
        lambda m: m.MaxVit(
            (64, 64), 16, 2, [16, 32], [1, 1], 8, 0.0, num_classes=10,
        ), varies=False,
    )  # fmt: skip


@model
def densenet() -> Case:
    return _vision(lambda m: m.DenseNet(8, (2, 2, 2), 16, num_classes=10))


@model
def squeezenet() -> Case:
    return _vision(lambda m: m.squeezenet1_1(num_classes=10))


@model
def shufflenet() -> Case:
    return _vision(
        lambda m: m.ShuffleNetV2([1, 2, 1], [8, 16, 32, 64, 128], num_classes=10)
    )


@model
def mnasnet() -> Case:
    return _vision(lambda m: m.MNASNet(0.35, num_classes=10))


@model
def googlenet() -> Case:
    return _vision(
        lambda m: m.GoogLeNet(num_classes=10, aux_logits=False, transform_input=True,
                              init_weights=False), varies=False,
    )  # fmt: skip


@model
def vgg() -> Case:
    def build(m: Any) -> nn.Module:
        features = m.vgg.make_layers([8, "M", 16, "M", 32, "M"], batch_norm=True)
        net: nn.Module = m.VGG(features, num_classes=10)
        net.classifier = nn.Sequential(nn.Linear(32 * 49, 32), nn.ReLU(True), nn.Dropout(),
                                       nn.Linear(32, 10))  # fmt: skip
        return net

    return _vision(build)


@model
def alexnet_features() -> Case:
    return _vision(lambda m: nn.Sequential(*list(m.alexnet(num_classes=10).features)[:6]))


@model
def regnet() -> Case:
    def build(m: Any) -> nn.Module:
        params = m.regnet.BlockParams.from_init_params(
            depth=4, w_0=16, w_a=8.0, w_m=2.0, group_width=8, se_ratio=0.25
        )
        net: nn.Module = m.RegNet(params, num_classes=10)
        return net

    return _vision(build)


@model
def lraspp() -> Case:
    return _vision(
        lambda m: m.segmentation.lraspp_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        ), varies=False,
    )  # fmt: skip


@model
def deeplab() -> Case:
    def build(m: Any) -> nn.Module:
        backbone = m._utils.IntermediateLayerGetter(
            m.ResNet(m.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10), {"layer4": "out"}
        )
        head = m.segmentation.deeplabv3.DeepLabHead(512, 4, (2, 4))
        net: nn.Module = m.segmentation.DeepLabV3(backbone, head)
        return net

    return _vision(build, varies=False)


@model
def fcn() -> Case:
    def build(m: Any) -> nn.Module:
        backbone = m._utils.IntermediateLayerGetter(
            m.ResNet(m.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10), {"layer4": "out"}
        )
        net: nn.Module = m.segmentation.FCN(backbone, m.segmentation.fcn.FCNHead(512, 4))
        return net

    return _vision(build, varies=False)


@model
def r3d() -> Case:
    models = _torchvision().models.video
    net = models.VideoResNet(
        models.resnet.BasicBlock, [models.resnet.Conv3DSimple] * 4, [1, 1, 1, 1],
        models.resnet.BasicStem, num_classes=10,
    )  # fmt: skip
    return Case(net, (numbers(2, 3, 8, 32, 32),), dynamic=({0: AUTO, 2: AUTO},),
                others=(numbers(3, 3, 6, 32, 32),))  # fmt: skip


@model
def raft_feature_encoder() -> Case:
    raft = _torchvision().models.optical_flow.raft
    net = raft.FeatureEncoder(
        block=raft.ResidualBlock, layers=(16, 16, 24, 32, 48), norm_layer=nn.InstanceNorm2d
    )
    return Case(net, (image(64),), dynamic=({0: AUTO},), others=(image(64, 3),))


# transformers


class _Named(nn.Module):
    """A module of transformers whose inputs are given by name."""

    def __init__(self, module: nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...],
                 **fixed: Any) -> None:  # fmt: skip
        super().__init__()
        self.module = module
        self.inputs = inputs
        self.outputs = outputs
        self.fixed = fixed

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.module(**dict(zip(self.inputs, args, strict=True)), **self.fixed)
        return tuple([getattr(found, name) for name in self.outputs])


_SMALL: Final = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip


def _masks(batch: int, length: int) -> torch.Tensor:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length - 2 :] = 0
    return mask


@model
def bert() -> Case:
    from transformers import BertConfig, BertModel

    net = _Named(BertModel(BertConfig(**_SMALL)), ("input_ids", "attention_mask", "token_type_ids"),
                 ("last_hidden_state", "pooler_output"))  # fmt: skip
    axes = {0: AUTO, 1: AUTO}
    return Case(
        net, (tokens(2, 12), _masks(2, 12), tokens(2, 12, below=2)), dynamic=((axes, axes, axes),),
        others=(tokens(3, 17), _masks(3, 17), tokens(3, 17, below=2)),
    )  # fmt: skip


@model
def roberta() -> Case:
    from transformers import RobertaConfig, RobertaModel

    net = _Named(RobertaModel(RobertaConfig(**_SMALL)), ("input_ids", "attention_mask"),
                 ("last_hidden_state",))  # fmt: skip
    axes = {0: AUTO, 1: AUTO}
    return Case(net, (tokens(2, 12), _masks(2, 12)), dynamic=((axes, axes),),
                others=(tokens(3, 17), _masks(3, 17)))  # fmt: skip


@model
def distilbert() -> Case:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(vocab_size=100, max_position_embeddings=64, n_layers=2, n_heads=4,
                              dim=32, hidden_dim=64)  # fmt: skip
    net = _Named(DistilBertModel(config), ("input_ids", "attention_mask"), ("last_hidden_state",))
    axes = {0: AUTO, 1: AUTO}
    return Case(net, (tokens(2, 12), _masks(2, 12)), dynamic=((axes, axes),),
                others=(tokens(3, 17), _masks(3, 17)))  # fmt: skip


def _decoder(module: nn.Module) -> Case:
    net = _Named(module, ("input_ids", "attention_mask"), ("logits",), use_cache=False)
    axes = {0: AUTO, 1: AUTO}
    return Case(net, (tokens(2, 12), _masks(2, 12)), dynamic=((axes, axes),),
                others=(tokens(3, 17), _masks(3, 17)))  # fmt: skip


@model
def gpt2() -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    return _decoder(GPT2LMHeadModel(GPT2Config(
        vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4
    )))  # fmt: skip


@model
def llama() -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    return _decoder(LlamaForCausalLM(LlamaConfig(**_SMALL, num_key_value_heads=2)))


@model
def qwen() -> Case:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return _decoder(Qwen2ForCausalLM(Qwen2Config(**_SMALL, num_key_value_heads=2)))


@model
def qwen3() -> Case:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return _decoder(Qwen3ForCausalLM(Qwen3Config(**_SMALL, num_key_value_heads=2, head_dim=8)))


@model
def gemma() -> Case:
    from transformers import GemmaConfig, GemmaForCausalLM

    return _decoder(GemmaForCausalLM(GemmaConfig(**_SMALL, num_key_value_heads=1, head_dim=8)))


@model
def phi() -> Case:
    from transformers import PhiConfig, PhiForCausalLM

    return _decoder(PhiForCausalLM(PhiConfig(**_SMALL)))


@model
def mixtral() -> Case:
    from transformers import MixtralConfig, MixtralForCausalLM

    return _decoder(MixtralForCausalLM(MixtralConfig(
        **_SMALL, num_key_value_heads=2, num_local_experts=3, num_experts_per_tok=2
    )))  # fmt: skip


@model
def mamba() -> Case:
    from transformers import MambaConfig, MambaForCausalLM

    net = _Named(MambaForCausalLM(MambaConfig(
        vocab_size=100, hidden_size=32, state_size=8, num_hidden_layers=2, use_mambapy=False
    )), ("input_ids",), ("logits",), use_cache=False)  # fmt: skip
    return Case(net, (tokens(2, 8),))


@model
def t5() -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                      decoder_start_token_id=0)  # fmt: skip
    net = _Named(T5ForConditionalGeneration(config),
                 ("input_ids", "attention_mask", "decoder_input_ids"), ("logits",),
                 use_cache=False)  # fmt: skip
    axes = {0: AUTO, 1: AUTO}
    return Case(
        net, (tokens(2, 12), _masks(2, 12), tokens(2, 5)), dynamic=((axes, axes, axes),),
        others=(tokens(3, 17), _masks(3, 17), tokens(3, 7)),
    )  # fmt: skip


@model
def bart() -> Case:
    from transformers import BartConfig, BartModel

    config = BartConfig(
        vocab_size=100, max_position_embeddings=64, encoder_layers=2, decoder_layers=2, d_model=32,
        encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4,
        decoder_attention_heads=4,
    )  # fmt: skip
    net = _Named(BartModel(config), ("input_ids", "decoder_input_ids"), ("last_hidden_state",),
                 use_cache=False)  # fmt: skip
    axes = {0: AUTO, 1: AUTO}
    return Case(net, (tokens(2, 12), tokens(2, 5)), dynamic=((axes, axes),),
                others=(tokens(3, 17), tokens(3, 7)))  # fmt: skip


@model
def whisper() -> Case:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=100, num_mel_bins=16, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, d_model=32, max_source_positions=20, max_target_positions=16,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    net = _Named(WhisperForConditionalGeneration(config), ("input_features", "decoder_input_ids"),
                 ("logits",), use_cache=False)  # fmt: skip
    return Case(net, (numbers(2, 16, 40), tokens(2, 5)), dynamic=(({0: AUTO}, {0: AUTO, 1: AUTO}),),
                others=(numbers(3, 16, 40), tokens(3, 7)))  # fmt: skip


@model
def wav2vec2() -> Case:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2),
        num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        apply_spec_augment=False,
    )  # fmt: skip
    net = _Named(Wav2Vec2ForCTC(config), ("input_values",), ("logits",))
    return Case(net, (numbers(2, 1000),), dynamic=(({0: AUTO, 1: AUTO},),),
                others=(numbers(3, 1400),))  # fmt: skip


@model
def clip() -> Case:
    from transformers import CLIPConfig, CLIPModel

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
             "intermediate_size": 64}  # fmt: skip
    config = CLIPConfig(
        text_config={**small, "vocab_size": 100, "max_position_embeddings": 32, "eos_token_id": 99},
        vision_config={**small, "image_size": 32, "patch_size": 8}, projection_dim=16,
    )  # fmt: skip
    net = _Named(CLIPModel(config), ("input_ids", "pixel_values", "attention_mask"),
                 ("logits_per_image", "text_embeds", "image_embeds"))  # fmt: skip
    ids = tokens(3, 7)
    ids[:, -1] = 99
    return Case(net, (ids, image(32), torch.ones_like(ids)))


@model
def segformer() -> Case:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 1], hidden_sizes=[16, 32],
        patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
        decoder_hidden_size=32,
    )  # fmt: skip
    net = _Named(SegformerForSemanticSegmentation(config), ("pixel_values",), ("logits",))
    return Case(net, (image(64),))


@model
def detr_like() -> Case:
    class Detector(nn.Module):
        """Queries attend to the features of an image, and name boxes and classes."""

        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 4, 1), nn.ReLU(),
                                          nn.Conv2d(16, 32, 3, 4, 1))  # fmt: skip
            self.transformer = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
            self.queries = nn.Parameter(torch.randn(6, 32))
            self.place = nn.Parameter(torch.randn(16, 32))
            self.classes = nn.Linear(32, 5)
            self.boxes = nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            features = self.backbone(x).flatten(2).transpose(1, 2) + self.place
            queries = self.queries.unsqueeze(0).expand(x.shape[0], -1, -1)
            found = self.transformer(features, queries)
            return self.classes(found), self.boxes(found).sigmoid()

    return Case(Detector(), (image(64),), dynamic=({0: AUTO},), others=(image(64, 3),))


# torch.nn


@model
def mlp() -> Case:
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(48, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(),
        nn.Linear(32, 16), nn.SiLU(), nn.BatchNorm1d(16), nn.Linear(16, 8), nn.LogSoftmax(-1),
    )  # fmt: skip
    return Case(net, (numbers(4, 3, 16),), dynamic=({0: AUTO},), others=(numbers(7, 3, 16),))


@model
def lstm() -> Case:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(100, 16, padding_idx=0)
            self.lstm = nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True, dropout=0.1)
            self.out = nn.Linear(24, 5)

        def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            x, (h, c) = self.lstm(self.embedding(ids))
            return self.out(x), h, c

    return Case(Tagger(), (tokens(2, 9),), dynamic=({0: AUTO},), others=(tokens(3, 9),))


@model
def gru() -> Case:
    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(8, 12, 2, bidirectional=True)
            self.rnn = nn.RNN(24, 6, nonlinearity="relu")
            self.cell = nn.LSTMCell(6, 6)

        def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y, last = self.gru(x, h)
            z, _ = self.rnn(y)
            a, b = self.cell(z[-1])
            return z, last, a, b

    return Case(Filter(), (numbers(9, 2, 8), numbers(4, 2, 12)))


@model
def unet() -> Case:
    class Block(nn.Sequential):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(nn.Conv2d(a, b, 3, padding="same"), nn.GroupNorm(4, b), nn.ReLU(True),
                             nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b),
                             nn.LeakyReLU(0.1, inplace=True))  # fmt: skip

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.middle = Block(3, 8), Block(8, 16), Block(16, 32)
            self.up2 = nn.ConvTranspose2d(32, 16, 2, 2)
            self.up1 = nn.ConvTranspose2d(16, 8, 3, 2, 1, 1)
            self.join2, self.join1 = Block(32, 16), Block(16, 8)
            self.out = nn.Conv2d(8, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = self.down1(x)
            b = self.down2(nn.functional.max_pool2d(a, 2))
            c = self.middle(nn.functional.avg_pool2d(b, 2))
            b = self.join2(torch.cat([self.up2(c), b], 1))
            a = self.join1(torch.cat([self.up1(b), a], 1))
            out: torch.Tensor = self.out(a)
            return nn.functional.interpolate(out, scale_factor=2.0, mode="bilinear")

    return Case(UNet(), (image(32),), dynamic=({0: AUTO},), others=(image(32, 3),))


@model
def recommender() -> Case:
    class Recommender(nn.Module):
        """Embeddings of categories in bags, crossed with features that are numbers."""

        def __init__(self) -> None:
            super().__init__()
            self.bags = nn.ModuleList([nn.EmbeddingBag(50, 8, mode=mode) for mode in
                                       ("sum", "mean", "max")])  # fmt: skip
            self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

        def forward(self, dense: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor
                    ) -> torch.Tensor:  # fmt: skip
            x = self.bottom(dense)
            found = [x, *[bag(ids, offsets) for bag in self.bags]]
            t = torch.stack(found, 1)
            products = torch.bmm(t, t.transpose(1, 2))
            i, j = torch.tril_indices(4, 4, offset=-1)
            return self.top(torch.cat([x, products[:, i, j]], 1)).squeeze(1)

    return Case(Recommender(), (numbers(3, 6), tokens(10, below=50), torch.tensor([0, 4, 4])))


@model
def vae() -> Case:
    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv2d(1, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.PReLU(16),
                nn.Flatten(), nn.Linear(16 * 49, 16),
            )  # fmt: skip
            self.decoder = nn.Sequential(
                nn.Linear(8, 16 * 49), nn.Unflatten(1, (16, 7, 7)),
                nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.Softplus(),
                nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh(),
            )  # fmt: skip

        def forward(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
            mean, log_variance = self.encoder(x).chunk(2, 1)
            z = mean + torch.exp(0.5 * log_variance) * noise
            return self.decoder(z), mean, log_variance

    return Case(VAE(), (image(28, channels=1), numbers(2, 8)), dynamic=({0: AUTO}, {0: AUTO}),
                others=(image(28, 3, 1), numbers(3, 8)))  # fmt: skip


@model
def transformer_encoder() -> Case:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.encoder(x, src_key_padding_mask=padding)
            return found

    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[0, 7:] = True
    return Case(Encoder(), (numbers(2, 9, 32), padding))


@model
def transformer() -> Case:
    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Transformer(32, 4, 1, 1, 64, norm_first=True)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[0])
            found: torch.Tensor = self.net(source, target, tgt_mask=mask, tgt_is_causal=True)
            return found

    return Case(Translator(), (numbers(9, 2, 32), numbers(5, 2, 32)))


@model
def graph_network() -> Case:
    class GraphNetwork(nn.Module):
        """Messages along edges, added up at their ends."""

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(6, 12), nn.Linear(12, 4)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            for layer in (self.one, self.two):
                source, target = edges[0], edges[1]
                given = layer(x)[source]
                total = torch.zeros(x.shape[0], given.shape[1]).index_add_(0, target, given)
                count = torch.zeros(x.shape[0]).scatter_add_(0, target, torch.ones(target.shape[0]))
                x = torch.relu(total / count.clamp(min=1).unsqueeze(1))
            return x.amax(0)

    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0], [1, 2, 3, 4, 5, 6, 0, 3]])
    return Case(GraphNetwork(), (numbers(7, 6), edges))


@model
def spatial_transformer() -> Case:
    class SpatialTransformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.place = nn.Sequential(
                nn.Conv2d(3, 4, 5, 2), nn.MaxPool2d(2), nn.Hardtanh(), nn.AdaptiveAvgPool2d(3),
                nn.Flatten(), nn.Linear(36, 6),
            )  # fmt: skip

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            theta = self.place(x).view(-1, 2, 3) * 0.3 + torch.tensor([[1.0, 0, 0], [0, 1, 0]])
            grid = nn.functional.affine_grid(theta, list(x.shape), align_corners=False)
            return nn.functional.grid_sample(x, grid, align_corners=False)

    return Case(SpatialTransformer(), (image(24),), dynamic=({0: AUTO},), others=(image(24, 3),))


@model
def tcn() -> Case:
    net = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 8, 3, padding=2, dilation=2)), nn.ReLU(),
        nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(8, 8, 3, groups=2),
        nn.InstanceNorm1d(8, affine=True), nn.GLU(1), nn.ConvTranspose1d(4, 4, 4, 2, 1),
        nn.ReflectionPad1d(2), nn.AvgPool1d(3, 2),
        nn.AdaptiveMaxPool1d(5),
    )  # fmt: skip
    return Case(net, (numbers(2, 4, 20),))


@model
def super_resolution() -> Case:
    net = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2, padding_mode="replicate"), nn.Tanh(),
                        nn.Conv2d(8, 9, 3, padding=1, padding_mode="circular"), nn.PixelShuffle(3),
                        nn.Upsample(scale_factor=2, mode="bicubic"), nn.Hardsigmoid())  # fmt: skip
    return Case(net, (image(12, channels=1),), dynamic=({0: AUTO, 2: AUTO, 3: AUTO},),
                others=(image(17, 3, 1),))  # fmt: skip


@model
def spectrogram() -> Case:
    class Spectrogram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hann_window(32))
            self.register_buffer("mels", torch.rand(17, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = torch.stft(x, 32, 8, window=self.window, return_complex=True)
            power = found.abs() ** 2
            return torch.log10(torch.clamp(power.transpose(1, 2) @ self.mels, min=1e-8))

    return Case(Spectrogram(), (numbers(2, 200),))


# Beyond the usual ones


def _encoder(module: nn.Module) -> Case:
    net = _Named(module, ("input_ids", "attention_mask"), ("last_hidden_state",))
    axes = {0: AUTO, 1: AUTO}
    return Case(net, (tokens(2, 12), _masks(2, 12)), dynamic=((axes, axes),),
                others=(tokens(3, 17), _masks(3, 17)))  # fmt: skip


@model
def deberta() -> Case:
    from transformers import DebertaConfig, DebertaModel

    return _encoder(DebertaModel(DebertaConfig(
        **_SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"]
    )))  # fmt: skip


@model
def deberta_v2() -> Case:
    from transformers import DebertaV2Config, DebertaV2Model

    return _encoder(DebertaV2Model(DebertaV2Config(
        **_SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8,
        share_att_key=True, conv_kernel_size=3,
    )))  # fmt: skip


@model
def modernbert() -> Case:
    from transformers import ModernBertConfig, ModernBertModel

    return _encoder(ModernBertModel(ModernBertConfig(
        **_SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    )))  # fmt: skip


@model
def falcon_alibi() -> Case:
    from transformers import FalconConfig, FalconForCausalLM

    return _decoder(FalconForCausalLM(FalconConfig(**_SMALL, alibi=True, multi_query=False)))


@model
def gemma2() -> Case:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    return _decoder(Gemma2ForCausalLM(Gemma2Config(
        **_SMALL, num_key_value_heads=2, head_dim=8, sliding_window=8
    )))  # fmt: skip


@model
def cache_of_keys() -> Case:
    class Attention(nn.Module):
        """A step of a decoder that takes and returns its keys and values."""

        def __init__(self) -> None:
            super().__init__()
            self.project, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(
            self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            batch, count, _ = x.shape
            parts = self.project(x).view(batch, count, 3, 4, 8).permute(2, 0, 3, 1, 4)
            keys, values = torch.cat([keys, parts[1]], 2), torch.cat([values, parts[2]], 2)
            total = keys.shape[2]
            mask = torch.ones(count, total, dtype=torch.bool).tril(total - count)
            found = nn.functional.scaled_dot_product_attention(parts[0], keys, values, mask)
            return self.out(found.transpose(1, 2).reshape(batch, count, 32)), keys, values

    def inputs(batch: int, count: int, before: int) -> tuple[torch.Tensor, ...]:
        return numbers(batch, count, 32), numbers(batch, 4, before, 8), numbers(batch, 4, before, 8)

    kept = {0: AUTO, 2: AUTO}
    return Case(Attention(), inputs(2, 3, 5), dynamic=({0: AUTO, 1: AUTO}, kept, kept),
                others=inputs(3, 4, 7))  # fmt: skip


@model
def experts() -> Case:
    class Experts(nn.Module):
        """Each row goes through the two of four networks that a gate chooses."""

        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(16, 4)
            self.first = nn.Parameter(numbers(4, 16, 32) * 0.1)
            self.second = nn.Parameter(numbers(4, 32, 16) * 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
            hidden = torch.einsum("td,tkdh->tkh", x, self.first[chosen])
            found = torch.einsum("tkh,tkhd->tkd", nn.functional.silu(hidden), self.second[chosen])
            return (found * weights[..., None]).sum(1)

    return Case(Experts(), (numbers(6, 16),), dynamic=({0: AUTO},), others=(numbers(9, 16),))


@model
def graph_attention() -> Case:
    class GraphAttention(nn.Module):
        """Messages along edges, weighted by a softmax over those that a node gets."""

        def __init__(self) -> None:
            super().__init__()
            self.project, self.score = nn.Linear(8, 16, bias=False), nn.Parameter(numbers(32))

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            source, target = edges[0], edges[1]
            nodes, given = x.shape[0], self.project(x)
            scores = (torch.cat([given[source], given[target]], -1) * self.score).sum(-1)
            most = torch.full((nodes,), -1e9).scatter_reduce(0, target, scores, "amax")
            weights = (scores - most[target]).exp()
            total = torch.zeros(nodes).index_add(0, target, weights)
            weights = weights / (total[target] + 1e-9)
            return torch.zeros(nodes, 16).index_add(0, target, given[source] * weights[:, None])

    def inputs(nodes: int, count: int) -> tuple[torch.Tensor, ...]:
        return numbers(nodes, 8), tokens(2, count, below=nodes)

    return Case(GraphAttention(), inputs(7, 15), dynamic=({0: AUTO}, {1: AUTO}),
                others=inputs(11, 30))  # fmt: skip
