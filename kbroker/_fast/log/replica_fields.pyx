"""What a leader notes of each follower, and a follower of each partition that it copies, as fields of C.

Both sides look at every partition of a fetch session with every fetch, twice a second and more: where nothing has
come, that is a few comparisons for each.
"""

from libc.stdint cimport int32_t, int64_t

from kbroker._fast.base.checked cimport CHECKED
from kbroker._fast.log.log_fields cimport LogFields, PartitionFields


cdef class FollowerFields:
    """Of `Follower`.  `leader_end`: the leader's log end at its last fetch, at `fetched_at`."""

    def fetched(self, int64_t fetch_offset, int64_t log_start_offset, int64_t leader_end, double now) -> bool:
        """A fetch: the follower has everything before `fetch_offset`.  Whether that is news."""
        return self._note(fetch_offset, log_start_offset, leader_end, now)

    cdef bint _note(self, int64_t fetch_offset, int64_t log_start_offset, int64_t leader_end, double now) except -1:
        cdef bint is_news = fetch_offset != self.log_end_offset or log_start_offset != self.log_start_offset
        if fetch_offset >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif fetch_offset >= self.leader_end >= 0:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end = leader_end
        if CHECKED:
            assert self.fetched_at <= now, "time goes back"
            assert self.caught_up_at <= now, "caught up at a time to come"
            assert fetch_offset >= 0, fetch_offset
        self.fetched_at = now
        return is_news

    cpdef bint asks_again(self, int64_t fetch_offset, int64_t log_start_offset, double now) except -1:
        """`fetched` at the leader's end, where that is no news; else False, and nothing is noted."""
        if fetch_offset != self.log_end_offset or log_start_offset != self.log_start_offset:
            return False
        self._note(fetch_offset, log_start_offset, fetch_offset, now)
        return True


cdef class FollowedFields:
    """A partition in the table of a fetcher.

    `is_asked`: its leader is asked for it, with the values that `note_asked` was called with.  `retry_at`: it is left
    out of fetches until then.  `has_to_truncate`: it is left out until its log was cut.
    """

    def __init__(self, PartitionFields partition not None, bint has_to_truncate):
        self.partition = partition
        self.has_to_truncate = has_to_truncate

    def note_asked(self, int64_t offset, int64_t log_start_offset, int32_t leader_epoch, int32_t last_epoch,
                   int32_t max_bytes) -> None:
        self.is_asked = True
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.leader_epoch = leader_epoch
        self.last_epoch = last_epoch
        self.max_bytes = max_bytes

    cdef bint is_settled(self, double now, int32_t max_bytes, bint truncates_on_fetch) noexcept:
        cdef LogFields log = self.partition.log_
        if self.has_to_truncate or self.partition.follower_throttled:
            return False
        if self.retry_at > now:
            return not self.is_asked
        return (self.is_asked and self.offset == log.local_.log_end_offset
                and self.leader_epoch == self.partition.leader_epoch
                and self.last_epoch == (log.leader_epoch_cache_.latest_epoch if truncates_on_fetch else -1)
                and self.log_start_offset == log.log_start_offset and self.max_bytes == max_bytes)


def unsettled(dict followed not None, double now, int32_t max_bytes, bint truncates_on_fetch) -> list:
    """The partitions to look at before the next fetch: their rows in it differ, or may differ, from the last fetch's.

    `truncates_on_fetch`: a fetch names the epoch of the last record.
    """
    cdef FollowedFields each
    cdef list found = []
    for each in followed.values():
        if not each.is_settled(now, max_bytes, truncates_on_fetch):
            found.append(each)
    return found
