"""Finds seizures and sleep spindles in a drawn signal, with brainmaze-eeg-models."""

import numpy as np
from brainmaze_eeg_models.seizure import predict_channel_seizure_probability
from brainmaze_eeg_models.spindles import SpindleDetector

rng = np.random.default_rng(0)
time = np.arange(200 * 300) / 200
signal = rng.normal(size=time.size) * 20
signal += 100 * np.sin(2 * np.pi * 4 * time) * ((time > 100) & (time < 160))
for model in ("modelA", "modelB"):
    _, chances = predict_channel_seizure_probability(signal, 200, model=model)
    print(model, [f"{chance:.3f}" for chance in chances[180:340:4]])

time = np.arange(250 * 60) / 250
signal = rng.normal(size=time.size) * 10
signal += 40 * np.sin(2 * np.pi * 13 * time) * ((time % 10 > 4) & (time % 10 < 5))
print(SpindleDetector().detect(signal, 250).to_array().round(2).tolist())
