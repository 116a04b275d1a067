COMPILER: str
MODE: str
