"""Writes Arabic names in Latin letters, with an encoder and a decoder."""

import arabic_name_romanizer

for name in ("محمد عبد الله", "فاطمة الزهراء", "خالد بن الوليد", "يوسف"):
    print(arabic_name_romanizer.transliterate(name))
