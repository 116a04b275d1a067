from collections.abc import Mapping

NAMES: tuple[str, ...]

def load(addresses: Mapping[str, int]) -> None: ...
