"""Listens for wake words in drawn sound, chunk by chunk, with five of the package's models."""

import numpy as np
from openwakeword.model import Model

time = np.arange(16000 * 3) / 16000
rng = np.random.default_rng(0)
sound = np.sin(2 * np.pi * (180 + 60 * np.sin(2 * np.pi * 3 * time)) * time) * (time % 0.5 < 0.3)
sound = ((sound * 0.4 + rng.normal(size=time.size) * 0.05) * 20000).astype(np.int16)
model = Model(vad_threshold=0.1)
for start in range(0, len(sound) - 1280, 1280 * 3):
    found = model.predict(sound[start : start + 1280])
    print({name: round(float(score), 5) for name, score in sorted(found.items())})
features = model.preprocessor._get_embeddings(sound)
print(features.shape, np.round(features[0, :6], 3).tolist())
