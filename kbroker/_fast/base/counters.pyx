"""Counters that the hot path can afford: plain C integers per API key and time histograms in fixed buckets.

A histogram has 22 buckets.  Bucket `k` below 21 counts values up to and including 10 us * 2**k (10 us, 20 us, ...,
10.49 s); bucket 21 counts everything above.  Buckets are not cumulative here; the renderer adds them up.

Invariants: the sum of an API's buckets equals its `count`; an error is counted beside the request, not instead of
it.  Keys outside 0..127 share one slot, reported under the key -1.  Nothing is locked: one thread, the loop's,
writes, and a reader under the GIL sees whole words.
"""

cimport cython
from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #define KB_CLZ64(x) __builtin_clzll(x)
    """
    int KB_CLZ64(unsigned long long x) noexcept nogil

cdef enum:
    FIRST_BOUND_NS = 10_000

#: Upper bounds of the buckets in nanoseconds, without the last one, which has none.
BUCKET_BOUNDS_NS = tuple(FIRST_BOUND_NS << k for k in range(BUCKETS - 1))


cdef int bucket_of(uint64_t total_ns) noexcept nogil:
    cdef uint64_t units
    cdef int bucket
    if total_ns <= FIRST_BOUND_NS:
        return 0
    # Whole multiples of the first bound that lie strictly below the value; the bucket is their bit length, because
    # the bounds double and include their own value.
    units = (total_ns - 1) // FIRST_BOUND_NS
    bucket = 64 - KB_CLZ64(units)
    return bucket if bucket < BUCKETS else BUCKETS - 1


cdef void add_time(ApiTotals* totals, uint64_t total_ns) noexcept nogil:
    totals.count += 1
    totals.sum_ns += total_ns
    totals.buckets[bucket_of(total_ns)] += 1


cdef void add_wait(WaitTotals* waits, uint64_t wait_ns, uint64_t total_ns) noexcept nogil:
    waits.count += 1
    waits.sum_ns += wait_ns
    waits.buckets[bucket_of(wait_ns)] += 1
    waits.moved[bucket_of(total_ns)] -= 1
    waits.moved[bucket_of(total_ns - min(wait_ns, total_ns))] += 1


cdef object waits_row(int api_key, WaitTotals* waits):
    cdef int k
    return (api_key, waits.count, waits.sum_ns, tuple([waits.buckets[k] for k in range(BUCKETS)]),
            tuple([waits.moved[k] for k in range(BUCKETS)]))


cdef class RequestStats:
    """Counts, errors, bytes and times of requests, per API key.

    `codes`: how often an answer, or a partition of an answer to Produce, had an error, by API key and code.
    """

    def __cinit__(self):
        self.codes = {}

    @cython.nonecheck(False)  # self is never None, and the check that debug builds add needs the GIL
    cdef void record(self, int api_key, uint64_t total_ns, Py_ssize_t bytes_in, Py_ssize_t bytes_out) noexcept nogil:
        cdef ApiTotals* totals = &self.totals[api_key if 0 <= api_key < API_SLOTS - 1 else API_SLOTS - 1]
        totals.bytes_in += <uint64_t>bytes_in
        totals.bytes_out += <uint64_t>bytes_out
        add_time(totals, total_ns)

    @cython.nonecheck(False)
    cdef void record_wait(self, int api_key, uint64_t wait_ns, uint64_t total_ns) noexcept nogil:
        """A request that was recorded has waited so long of its time."""
        add_wait(&self.waits[api_key if 0 <= api_key < API_SLOTS - 1 else API_SLOTS - 1], wait_ns, total_ns)

    @cython.nonecheck(False)
    cdef void record_follower(self, uint64_t wait_ns, uint64_t total_ns) noexcept nogil:
        """A fetch that was recorded is a follower's.  `wait_ns`: 0 for one that did not wait."""
        add_time(&self.from_followers, total_ns)
        if wait_ns:
            add_wait(&self.waits_of_followers, wait_ns, total_ns)

    cdef int count_code(self, int api_key, int code) except -1:
        cdef tuple key = (api_key, code)
        self.codes[key] = self.codes.get(key, 0) + 1
        return 0

    @cython.nonecheck(False)
    cdef void count_error(self, int api_key) noexcept nogil:
        self.totals[api_key if 0 <= api_key < API_SLOTS - 1 else API_SLOTS - 1].errors += 1

    def add(self, int api_key, uint64_t total_ns, Py_ssize_t bytes_in, Py_ssize_t bytes_out):
        """`record`, for callers in Python."""
        if bytes_in < 0 or bytes_out < 0:
            raise ValueError("a request has no negative size")
        self.record(api_key, total_ns, bytes_in, bytes_out)

    def add_wait(self, int api_key, uint64_t wait_ns, uint64_t total_ns, bint by_follower=False):
        """`record_wait` and `record_follower`, for callers in Python."""
        self.record_wait(api_key, wait_ns, total_ns)
        if by_follower:
            self.record_follower(wait_ns, total_ns)

    def add_code(self, int api_key, int code):
        """An answer had an error."""
        self.count_code(api_key, code)

    def waits_by_api(self):
        """One tuple per API of which a request has waited: (api_key, count, sum_ns, buckets, moved)."""
        cdef int slot
        return [
            waits_row(slot if slot < API_SLOTS - 1 else -1, &self.waits[slot])
            for slot in range(API_SLOTS) if self.waits[slot].count
        ]

    def followers(self):
        """Of followers' fetches: (count, sum_ns, buckets), and the row of `waits_by_api`."""
        cdef int k
        cdef ApiTotals* totals = &self.from_followers
        return ((totals.count, totals.sum_ns, tuple([totals.buckets[k] for k in range(BUCKETS)])),
                waits_row(1, &self.waits_of_followers))

    def add_error(self, int api_key):
        """`count_error`, for callers in Python."""
        self.count_error(api_key)

    def total(self):
        """Requests of all APIs."""
        cdef int slot
        cdef uint64_t count = 0
        for slot in range(API_SLOTS):
            count += self.totals[slot].count
        return count

    def count(self, int api_key):
        """Requests of one API."""
        return self.totals[api_key if 0 <= api_key < API_SLOTS - 1 else API_SLOTS - 1].count

    def snapshot(self):
        """One tuple per API seen: (api_key, count, errors, bytes_in, bytes_out, sum_ns, buckets)."""
        cdef int slot, k
        cdef ApiTotals* totals
        cdef list rows = []
        for slot in range(API_SLOTS):
            totals = &self.totals[slot]
            if totals.count == 0 and totals.errors == 0:
                continue
            rows.append((
                slot if slot < API_SLOTS - 1 else -1,
                totals.count,
                totals.errors,
                totals.bytes_in,
                totals.bytes_out,
                totals.sum_ns,
                tuple([totals.buckets[k] for k in range(BUCKETS)]),
            ))
        return rows


cdef class Histogram:
    """One time histogram in the same buckets."""

    @cython.nonecheck(False)
    cdef void record(self, uint64_t value_ns) noexcept nogil:
        self.sum_ns += value_ns
        self.buckets[bucket_of(value_ns)] += 1

    def add(self, uint64_t value_ns):
        """`record`, for callers in Python."""
        self.record(value_ns)

    def snapshot(self):
        """(sum_ns, buckets)."""
        cdef int k
        return self.sum_ns, tuple([self.buckets[k] for k in range(BUCKETS)])
