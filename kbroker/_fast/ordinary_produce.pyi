from kbroker._fast.direct import DirectAnswers

class OrdinaryProduce(DirectAnswers):
    def __init__(self, internal: frozenset[str], system_clock: type) -> None: ...
