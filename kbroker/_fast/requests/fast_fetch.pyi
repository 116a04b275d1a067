from kbroker._fast.net.direct import DirectAnswers
from kbroker._fast.requests.fetch_answer import FetchRules

class FastFetch(DirectAnswers):
    rules: FetchRules
    def __init__(self, rules: FetchRules) -> None: ...
