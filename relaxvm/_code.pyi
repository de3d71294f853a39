from typing import final

@final
class Image: ...
