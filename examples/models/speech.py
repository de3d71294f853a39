"""Find speech in a sound, piece by piece: a trained model whose state goes from call to call.

    pip download --no-deps silero-vad
    python examples/models/speech.py silero_vad-*.whl [SOUND.wav]

The model is silero-vad, in ONNX's format, of the package's wheel, which is not installed.  Each
call gets 32 ms of sound and the state that the last call returned.  Without a sound, the program
makes one: two phrases of a synthetic voice, and noise around them.
"""

from __future__ import annotations

import argparse
import time
import wave
from pathlib import Path
from zipfile import ZipFile

import numpy as np

import relaxvm

MODEL = "silero_vad/data/silero_vad.onnx"
RATE = 16_000
PIECE, BEFORE = 512, 64
"""Samples of a call: new ones, and those of the last call before them."""
SPEECH = 0.5
VOWELS = (
    (130, ((730, 90, 1.0), (1090, 110, 0.6), (2440, 170, 0.3))),
    (140, ((270, 60, 1.0), (2290, 100, 0.4), (3010, 170, 0.2))),
    (120, ((300, 60, 1.0), (870, 90, 0.5), (2240, 170, 0.1))),
    (135, ((730, 90, 1.0), (1090, 110, 0.6), (2440, 170, 0.3))),
    (110, ((270, 60, 1.0), (2290, 100, 0.4), (3010, 170, 0.2))),
)
"""Pitch, and the resonances of the mouth: frequency, width, share; as in "ah ee oo ah ee"."""


def resonance(x: np.ndarray, frequency: float, width: float) -> np.ndarray:
    """What a tube that resonates at a frequency makes of a sound."""
    radius = np.exp(-np.pi * width / RATE)
    a, b = 2 * radius * np.cos(2 * np.pi * frequency / RATE), -radius * radius
    y = np.zeros(len(x) + 2)
    for i, value in enumerate(x):
        y[i + 2] = value + a * y[i + 1] + b * y[i]
    return y[2:] * (1 - radius)


def phrase(rng: np.random.Generator, seconds: float = 0.16) -> np.ndarray:
    """Five syllables of a synthetic voice: pulses of the vocal cords through resonances."""
    sounds = []
    for pitch, formants in VOWELS:
        t = np.arange(int(seconds * RATE)) / RATE
        wobble = (1 + 0.03 * np.sin(2 * np.pi * 5 * t)) * (1 - 0.15 * t / seconds)
        pulses = np.diff(np.floor(np.cumsum(pitch * wobble) / RATE), prepend=0)
        pulses = pulses + 0.002 * rng.standard_normal(len(t))
        vowel = sum(share * resonance(pulses, f, width) for f, width, share in formants)
        fade = np.minimum(1, np.minimum(t / 0.03, (seconds - t) / 0.05))
        hiss = 0.05 * rng.standard_normal(int(0.06 * RATE)) * np.hanning(int(0.06 * RATE))
        sounds += [hiss, vowel * fade]
    sound = np.concatenate(sounds)
    return sound / np.abs(sound).max() / 2


def made_sound() -> np.ndarray:
    rng = np.random.default_rng(0)
    silence = np.zeros(RATE)
    sound = np.concatenate([silence, phrase(rng), silence, phrase(rng), silence])
    return (sound + 0.003 * rng.standard_normal(len(sound))).astype(np.float32)


def read_sound(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth()) != (RATE, 2):
            raise SystemExit(f"{path}: expected {RATE} samples of 16 bits a second")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return samples.reshape(-1, file.getnchannels()).mean(1).astype(np.float32) / 32768


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="of `pip download --no-deps silero-vad`")
    parser.add_argument("sound", type=Path, nargs="?", help="a .wav file")
    options = parser.parse_args()

    with ZipFile(options.wheel) as wheel:
        vm = relaxvm.VirtualMachine(relaxvm.compile(wheel.read(MODEL)))
    sound = made_sound() if options.sound is None else read_sound(options.sound)

    begun = time.perf_counter()
    state = np.zeros((2, 1, 128), np.float32)
    rate = np.array(RATE)
    padded = np.concatenate([np.zeros(BEFORE, np.float32), sound])
    probabilities = []
    for start in range(0, len(sound) - PIECE + 1, PIECE):
        piece = padded[start : start + BEFORE + PIECE]
        # The model's inputs and outputs by its own names; the new state is for the next call.
        result = vm.main(input=piece[None], state=state, sr=rate)
        named = dict(zip(vm.main.output_names, result, strict=True))
        state = named["stateN"]
        probabilities.append(float(named["output"][0, 0]))
    seconds = time.perf_counter() - begun

    print("".join(" .:-=+*#%@"[int(p * 9.99)] for p in probabilities))
    is_speech = [False, *(p > SPEECH for p in probabilities), False]
    edges = [i for i in range(1, len(is_speech)) if is_speech[i] != is_speech[i - 1]]
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        begin, stop = ((i - 1) * PIECE / RATE for i in (first, end))
        print(f"speech from {begin:.2f} s to {stop:.2f} s")
    print(f"{len(sound) / RATE:.1f} s of sound in {seconds:.2f} s")


if __name__ == "__main__":
    main()
