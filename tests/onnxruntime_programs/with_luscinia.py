"""Finds the stressed vowels of Ukrainian words, by a forest of decision trees."""

from luscinia import LusciniaPredictor

predictor = LusciniaPredictor()
words = ["університет", "перемога", "соловейко", "ластівка", "мама", "незалежність"]
print(predictor.predict_batch(words), predictor.predict("виходити", pos="VERB"))
