"""Scenarios: raw requests whose answers by real Apache Kafka are on record, and must be kbroker's too.

A scenario is a function that asks and records; `golden/kafka-4.3.1.json` holds what Apache Kafka 4.3.1 said.
`test_answers.py` compares kbroker with the record; tests marked `kafka` compare the record with Kafka itself and,
with KBROKER_RECORD=1, write it anew.  What differs on purpose is listed in `differences.py`, each with its reason.
"""
