"""What mkdocs does to pages: links to files outside of the docs become plain text.

On a web page of the repository they lead to the file; the site does not have them.
"""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """The text of a page without links that lead out."""
    return _OUTSIDE.sub(r"\1", markdown)
