"""The same model in plain numpy, for training and for comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from model import CHARS, HEADS, SIZE, WIDTH, WINDOW

Weights = Mapping[str, np.ndarray]


def forward(weights: Weights, text: np.ndarray) -> dict[str, np.ndarray]:
    """Return the logits of a text, int64[b, n], and all intermediate results, by name."""
    w, (b, n) = weights, text.shape
    s: dict[str, np.ndarray] = {}
    s["x"] = w["embedding"][text]
    s["normed1"], s["scale1"] = _rms_norm(s["x"], w["norm1"])
    qkv = (s["normed1"] @ w["qkv"]).reshape(b, n, 3, HEADS, SIZE)
    s["q"], s["k"], s["v"] = qkv.transpose(2, 0, 3, 1, 4)  # each [b, heads, n, size]

    scores = s["q"] @ s["k"].swapaxes(-1, -2) / np.float32(SIZE**0.5) + _bias(w["distance"], n)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    s["shares"] = powers / powers.sum(axis=-1, keepdims=True)
    s["found"] = (s["shares"] @ s["v"]).swapaxes(1, 2).reshape(b, n, WIDTH)
    s["y"] = s["x"] + s["found"] @ w["mix"]

    s["normed2"], s["scale2"] = _rms_norm(s["y"], w["norm2"])
    s["hidden"] = np.maximum(s["normed2"] @ w["up"], 0)
    s["z"] = s["y"] + s["hidden"] @ w["down"]
    s["normed3"], s["scale3"] = _rms_norm(s["z"], w["norm3"])
    s["logits"] = s["normed3"] @ w["head"]
    return s


def generate(
    weights: Weights, prompt: np.ndarray, uniforms: np.ndarray, temperature: float
) -> np.ndarray:
    """Return what `main` of the program does, by running the whole text for each character."""
    text = prompt
    for uniform in uniforms.T[:, :, None]:
        logits = forward(weights, text)["logits"][:, -1]
        char = choose(logits, uniform, np.float32(temperature))
        text = np.concatenate([text, char], axis=1)
    return text


def choose(logits: np.ndarray, uniform: np.ndarray, temperature: np.float32) -> np.ndarray:
    """Choose a character for each row, int64[b, 1]."""
    if temperature <= 0:
        return logits.argmax(axis=1, keepdims=True)
    scaled = logits / temperature
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    ends = (powers / powers.sum(axis=1, keepdims=True)).cumsum(axis=1)
    return np.minimum((ends <= uniform).sum(axis=1, keepdims=True), CHARS - 1)


def _bias(distance: np.ndarray, n: int) -> np.ndarray:
    """The bias of the attention scores, float32[heads, n, n]: by distance, within the window."""
    back = np.arange(n)[:, None] - np.arange(n)
    bias = distance[back.clip(0, WINDOW - 1)]
    bias[(back < 0) | (back >= WINDOW)] = -1e9
    return bias.transpose(2, 0, 1)


def _rms_norm(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    return x * scale * weight, scale
