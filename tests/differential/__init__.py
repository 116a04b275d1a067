"""The same generated requests to Apache Kafka and to kbroker, and what each answers, field by field.

`values.py` makes requests of any API and version out of the schema tables, valid ones and ones at the bounds of each
field and beyond; `questions.py` sends them, some of them damaged; `comparison.py` compares the answers.  Everything
comes from a seed, so a difference can be asked again:

    python -m tests.differential.comparison KAFKA_PORT KBROKER_PORT [API...]
"""
