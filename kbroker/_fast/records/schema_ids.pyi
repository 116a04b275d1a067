from typing_extensions import Buffer

NO_SCHEMA: int

def unknown_schemas(
    payload: Buffer, known: set[int], *, keys: bool, values: bool, most: int
) -> list[tuple[int, bool, int]]: ...
