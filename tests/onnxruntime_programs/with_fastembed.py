"""Embeds texts, with a model in a folder: a layer of attention with drawn weights."""

import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

WORDS = ["[PAD]", "[UNK]", "a", "register", "machine", "runs", "tensor", "programs", "soon"]
rng = np.random.default_rng(0)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(rng.normal(size=shape).astype("f4") * 0.4, name)


def made() -> onnx.ModelProto:
    nodes = [
        ("Gather", ["words", "input_ids"], "x", {}),
        *[("MatMul", ["x", each], f"{each}x", {}) for each in "qkv"],
        ("Transpose", ["kx"], "turned", {"perm": [0, 2, 1]}),
        ("MatMul", ["qx", "turned"], "scores", {}),
        ("Cast", ["attention_mask"], "given", {"to": TensorProto.FLOAT}),
        ("Sub", ["one", "given"], "missing", {}),
        ("Mul", ["missing", "low"], "bias", {}),
        ("Unsqueeze", ["bias", "axis"], "row", {}),
        ("Add", ["scores", "row"], "masked", {}),
        ("Softmax", ["masked"], "weights", {"axis": -1}),
        ("MatMul", ["weights", "vx"], "mixed", {}),
        ("Add", ["mixed", "x"], "summed", {}),
        ("LayerNormalization", ["summed", "scale", "shift"], "last_hidden_state", {"axis": -1}),
    ]
    constants = [
        weight("words", len(WORDS), 16), *[weight(each, 16, 16) for each in "qkv"],
        weight("scale", 16), weight("shift", 16),
        numpy_helper.from_array(np.float32(1), "one"),
        numpy_helper.from_array(np.float32(-1e9), "low"),
        numpy_helper.from_array(np.array([1]), "axis"),
    ]  # fmt: skip
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, inputs, [out], **attrs) for op, inputs, out, attrs in nodes], "drawn",
        [tensor(name, TensorProto.INT64, ["b", "n"]) for name in ("input_ids", "attention_mask")],
        [tensor("last_hidden_state", TensorProto.FLOAT, ["b", "n", 16])], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = Whitespace()
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    onnx.save(made(), folder / "model.onnx")
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"model_max_length": 12, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    TextEmbedding.add_custom_model(
        "drawn", PoolingType.MEAN, True, ModelSource(hf="drawn/drawn"), 16, model_file="model.onnx"
    )
    model = TextEmbedding("drawn", specific_model_path=name, threads=1, enable_cpu_mem_arena=False)
    texts = ["a register machine", "runs", "tensor programs soon soon runs a machine", "unknown"]
    for row in model.embed(texts, batch_size=2):
        print(row.shape, np.round(row[:8].astype(float), 4).tolist())
