"""Metrics of the upkeep of logs: recovery, compaction, retention and flushes.  Rows as in `families`."""

from __future__ import annotations

from kbroker.metrics.families import table

_ROWS = """
kbroker_recovery_logs_left|gauge|directory|Partitions that this start has still to recover; only after an unclean stop.
kbroker_recovery_segments_left|gauge|directory|Segments that this recovery has still to read.
kbroker_recovery_thread_segments_left|gauge|thread|Segments of the log that a thread recovers that it has still to read.
kbroker_recovery_left_bytes|gauge|directory|Bytes that this recovery has still to read, at most.
kbroker_recovery_left_seconds|gauge|directory|Time that this recovery will still take at its speed so far.
kbroker_log_damages|gauge|kind|
    Parts of logs that cannot be read (damaged), or are not there although they should be (missing).
kbroker_log_dir_cordoned|gauge|directory|Whether a log directory takes no new partitions (cordoned.log.dirs).
kbroker_log_dir_moves_in_progress|gauge|directory|Partitions that are being moved into a log directory.
kbroker_log_dir_moves_left_bytes|gauge|directory|Bytes that these moves have still to copy.
kbroker_log_dir_moves|counter|outcome|Moves of partitions between log directories: done, failed, called_off.
kbroker_log_dir_moves_copied_bytes|counter||Bytes that moves have copied.
kbroker_cleaner_threads|gauge||Threads that may compact at a time (log.cleaner.threads).
kbroker_cleaner_busy_threads|gauge||Threads that compact now.
kbroker_cleaner_dead_threads|gauge||
    Threads that an error has ended; others take their places after log.cleaner.backoff.ms.
kbroker_cleaner_compacted_partitions|gauge||Partitions whose cleanup.policy has compact, as last looked at.
kbroker_cleaner_dirty_bytes|gauge||Bytes that wait for compaction and may be compacted, all partitions.
kbroker_cleaner_max_dirty_ratio|gauge||The largest dirty share of a compacted partition.
kbroker_cleaner_oldest_dirty_seconds|gauge||
    Age of the oldest record that waits for compaction outside active segments; 0 without one.
kbroker_cleaner_uncleanable_partitions|gauge|directory|Partitions whose last compaction failed.
kbroker_cleaner_uncleanable_bytes|gauge|directory|Bytes that wait for compaction in them.
kbroker_cleaner_runs|counter|outcome|Compactions of a partition: done, failed, aborted (something else needed the log).
kbroker_cleaner_read_bytes|counter||Bytes that compaction has read.
kbroker_cleaner_written_bytes|counter||Bytes that compaction has written.
kbroker_cleaner_records|counter|outcome|Records that compaction has kept and dropped.
kbroker_cleaner_keyless_records|counter||Records without a key that compaction has dropped.
kbroker_cleaner_seconds|counter||Time of compactions that were done, all threads.
kbroker_cleaner_throttled_seconds|counter||
    Time that compaction has waited for log.cleaner.io.max.bytes.per.second.
kbroker_cleaner_recopy_ratio|gauge||Bytes written for each byte read, over the last compaction of every partition.
kbroker_cleaner_max_buffer_use_ratio|gauge||
    How full the offset map was at most, over the last compaction of every partition.
kbroker_cleaner_max_clean_seconds|gauge||The longest of the last compactions of every partition.
kbroker_cleaner_last_clean_timestamp_seconds|gauge||When a compaction was last done; 0 when none was.
kbroker_partition_dirty_ratio|gauge|topic,partition|Dirty share of a compacted partition.
kbroker_partition_dirty_bytes|gauge|topic,partition|Bytes of a partition that wait for compaction.
kbroker_partition_oldest_dirty_seconds|gauge|topic,partition|Age of the oldest record that waits for compaction.
kbroker_partition_clean_failures|gauge|topic,partition|Compactions that failed in a row; only of partitions that fail.
kbroker_partition_clean_failing_seconds|gauge|topic,partition|Since when compaction fails.
kbroker_partition_clean_retry_seconds|gauge|topic,partition|Time until compaction is tried again.
kbroker_retention_runs|counter||Times that retention has looked at all partitions.
kbroker_retention_last_run_seconds|gauge||How long it took to look at all partitions, other work included.
kbroker_retention_deleted_segments|counter|reason|
    Segments deleted: time (retention.ms), size (retention.bytes), log_start (below the log start offset).
kbroker_retention_deleted_bytes|counter|reason|Bytes of these.
kbroker_retention_failures|counter||Partitions at which retention failed, each time.
kbroker_retention_oldest_deletable_seconds|gauge||
    Age of the newest record in the oldest segment that retention.ms gave up and that is still there; 0 without one.
kbroker_retention_future_partitions|gauge||Partitions that keep segments because a record is dated in the future.
kbroker_log_flushes|counter||fsyncs of logs outside group commits: rolled segments, flush.ms, checkpoints.
kbroker_log_flush_seconds|counter||Time of these.
kbroker_log_flush_max_seconds|gauge||The longest of these.
"""

FAMILIES = table(_ROWS)
