"""Finds the voice in six seconds of sound, with silero-vad."""

import numpy as np
import torch
from silero_vad import get_speech_timestamps, load_silero_vad

RATE = 16000


def voice(first: float, last: float, pitch: float) -> tuple[slice, np.ndarray]:
    """Pulses of a voice through four formants, from one second to another."""
    at = np.arange(int(first * RATE), int(last * RATE))
    phase = np.cumsum(pitch * (1 + 0.03 * np.sin(2 * np.pi * 3 * at / RATE))) / RATE
    y = (np.diff(np.floor(phase), prepend=0) > 0).astype("float64")
    for frequency, width in ((730, 90), (1090, 110), (2440, 170), (3400, 250)):
        radius = np.exp(-np.pi * width / RATE)
        a, b = 2 * radius * np.cos(2 * np.pi * frequency / RATE), -radius * radius
        before = older = 0.0
        for k, value in enumerate(y):
            before, older = value + a * before + b * older, before
            y[k] = before
        y /= np.abs(y).max()
    loudness = 0.5 + 0.5 * np.sin(2 * np.pi * 4 * at / RATE)
    return slice(at[0], at[-1] + 1), 0.3 * y * loudness


torch.set_num_threads(1)
sound = np.random.RandomState(0).randn(RATE * 6).astype("float32") * 0.003
for part in ((1.0, 2.5, 120), (3.5, 5.0, 180)):
    place, samples = voice(*part)
    sound[place] += samples.astype("float32")
model = load_silero_vad(onnx=True)
wave = torch.from_numpy(sound)
print(get_speech_timestamps(wave, model, return_seconds=True, threshold=0.3))
model.reset_states()
print([f"{float(model(wave[i : i + 512], RATE)):.4f}" for i in range(0, 512 * 40, 512)])
