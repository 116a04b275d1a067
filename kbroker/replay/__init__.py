"""The data pipeline on Spark: traces in, shaped, replayed and verified; topics in and out of DataFrames without a jar.

Needs the extra `kbroker[spark]`.  Everything heavy runs in executors; nothing is collected to the driver.

`register(spark)` makes `format("kbroker")` and `format("kbroker-log")` known to a session; `decoded` shows keys and
values by their schemas.
"""

from kbroker.replay.decoding import decoded
from kbroker.replay.registration import register

__all__ = ["decoded", "register"]
