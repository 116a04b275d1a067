COMPILER: str
MODE: str
CHECKED: bool
