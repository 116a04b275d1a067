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


cdef class RequestStats:
    """Counts, errors, bytes and times of requests, per API key."""

    @cython.nonecheck(False)  # self is never None, and the check that debug builds add needs the GIL
    cdef void record(self, int api_key, uint64_t total_ns, Py_ssize_t bytes_in, Py_ssize_t bytes_out) noexcept nogil:
        cdef ApiTotals* totals = &self.totals[api_key if 0 <= api_key < API_SLOTS - 1 else API_SLOTS - 1]
        totals.count += 1
        totals.bytes_in += <uint64_t>bytes_in
        totals.bytes_out += <uint64_t>bytes_out
        totals.sum_ns += total_ns
        totals.buckets[bucket_of(total_ns)] += 1

    @cython.nonecheck(False)
    cdef void count_error(self, int api_key) noexcept nogil:
        self.totals[api_key if 0 <= api_key < API_SLOTS - 1 else API_SLOTS - 1].errors += 1

    def add(self, int api_key, uint64_t total_ns, Py_ssize_t bytes_in, Py_ssize_t bytes_out):
        """`record`, for callers in Python."""
        if bytes_in < 0 or bytes_out < 0:
            raise ValueError("a request has no negative size")
        self.record(api_key, total_ns, bytes_in, bytes_out)

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
