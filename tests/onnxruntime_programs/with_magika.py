"""Names the kinds of files, with magika."""

from magika import Magika

magika = Magika()
for data in (
    b"import os\nprint(os.getcwd())\n" * 5,
    b"%PDF-1.4 test",
    b'{"a": [1,2,3]}',
    b"#include <stdio.h>\nint main(void){return 0;}\n",
    b"\x00\x01\x02" * 100,
    b"",
):
    found = magika.identify_bytes(data)
    print(found.output.label, f"{found.score:.4f}")
