"""The Spark data sources `kbroker` (a broker) and `kbroker-log` (segment directories).

Whatever Spark hands to a worker of ours is imported from here, so this is where a worker's module path is tidied.
"""

from kbroker.replay.sources.worker_path import leave_out_spark_jar

leave_out_spark_jar()
