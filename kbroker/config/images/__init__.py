"""The environment by which container images of Kafka are set up: apache's, Confluent's, bitnami's and wurstmeister's.

`settings` makes broker settings of it where `KBROKER_KAFKA_VARIABLES=obey` says so, as kbroker's own image does;
`unread` names the variables where nothing says so.
"""
