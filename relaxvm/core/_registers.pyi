from typing import final

@final
class Places: ...
