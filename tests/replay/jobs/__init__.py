"""Jobs as users of Spark's Kafka connector write them, for running each with `kafka` and with `kbroker`."""
