"""Replays a trace open loop: each record is sent at its time, without waiting for answers.

plan         what a trace asks for, and the rows as executors take them
run          the driver: checks, start offsets, the Spark job, progress, a stop, the run's directory
executor     what one task does: wait for the others, send at the right time, count
operations   the producer and the members of consumer groups inside an executor
outcome      what is counted, by second, topic and partition, and written by executors as Parquet
channel      rates from executors to the driver, and the word to stop back
sampling     CPU, memory and metrics of the broker, taken beside
"""
