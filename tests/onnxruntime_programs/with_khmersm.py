"""Finds the words of Khmer sentences."""

import khmersm

print(khmersm.segment("ខ្ញុំស្រឡាញ់ប្រទេសកម្ពុជាណាស់ ថ្ងៃនេះអាកាសធាតុល្អ"))
