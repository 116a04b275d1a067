"""The same generated requests to Apache Kafka and to kbroker, and what each answers, field by field.

`cases.py` makes the requests of any API and version out of the schema tables: sound ones and, of each of these, ones
with one field changed, at the bounds of its type, beyond them, and on the wire; `values.py` has what a field may hold,
`places.py` what a request finds (members of groups, open transactions, sessions).  `questions.py` sends them,
`comparison.py` compares the answers, `allowed.py` lists what may differ, and why.

    python -m tests.differential.comparison [API...]           runs both brokers and prints what differs
    python -m tests.differential.comparison --record           writes record.json, which the documentation's table shows
"""
