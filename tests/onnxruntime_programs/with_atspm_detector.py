"""Says what the detectors of a traffic signal see, with atspm-detector: its trees and networks on
an hour of drawn events."""

import numpy as np
import pandas as pd
from atspm_detector import predict

pd.options.future.infer_string = False  # duckdb knows no other texts
random = np.random.default_rng(0)
start = pd.Timestamp("2024-12-03 12:00:00")
SECONDS = 3600
rows = []


def event(at: float, kind: int, number: int) -> None:
    rows.append(("a", start + pd.Timedelta(seconds=round(float(at), 1)), kind, number))


for phase, begin, green in ((2, 0, 35), (6, 0, 35), (4, 45, 30), (8, 45, 30)):
    for cycle in range(begin, SECONDS, 90):
        for after, kind in ((0, 1), (green, 8), (green + 4, 10), (green + 5, 11)):
            event(cycle + after, kind, phase)
for detector, is_advance in ((2, True), (3, False), (4, False), (6, True), (8, False)):
    now = 0.0
    while now < SECONDS:
        now += random.exponential(6)
        length = 0.4 if is_advance else 0.5 + random.exponential(3)
        event(now, 82, detector)
        event(now + length, 81, detector)
        now += length
events = pd.DataFrame(rows, columns=["DeviceId", "Timestamp", "EventId", "Parameter"])
events = events.sort_values("Timestamp").reset_index(drop=True)
events = events.astype({"DeviceId": object, "EventId": "int16", "Parameter": "int16"})
print(predict(events).round(4).to_string())
