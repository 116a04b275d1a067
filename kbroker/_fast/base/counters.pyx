"""Counters that the hot path can afford: plain C integers per API key and time histograms in fixed buckets.

A histogram has 22 buckets.  Bucket `k` below 21 counts values up to and including 10 us * 2**k (10 us, 20 us, ...,
10.49 s); bucket 21 counts everything above.  Buckets are not cumulative here; the renderer adds them up.  Sizes of
requests are in as many buckets: 100 bytes, 200 bytes, ..., 105 MB, and above.

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
    FIRST_BOUND_BYTES = 100

#: Upper bounds of the buckets in nanoseconds, without the last one, which has none.
BUCKET_BOUNDS_NS = tuple(FIRST_BOUND_NS << k for k in range(BUCKETS - 1))
#: Those of sizes.
BUCKET_BOUNDS_BYTES = tuple(FIRST_BOUND_BYTES << k for k in range(BUCKETS - 1))
#: The parts of a request's time, in the order of `RequestStats.parts_by_api`.
PARTS = ("queued", "waited", "throttled", "held", "sent")


cdef inline int bucket_from(uint64_t value, uint64_t first_bound) noexcept nogil:
    cdef uint64_t units
    cdef int bucket
    if value <= first_bound:
        return 0
    # Whole multiples of the first bound that lie strictly below the value; the bucket is their bit length, because
    # the bounds double and include their own value.
    units = (value - 1) // first_bound
    bucket = 64 - KB_CLZ64(units)
    return bucket if bucket < BUCKETS else BUCKETS - 1


cdef int bucket_of(uint64_t total_ns) noexcept nogil:
    return bucket_from(total_ns, FIRST_BOUND_NS)


cdef void add_request(ApiTotals* totals, uint64_t total_ns, Py_ssize_t body_bytes) noexcept nogil:
    totals.count += 1
    totals.sum_ns += total_ns
    totals.buckets[bucket_of(total_ns)] += 1
    totals.body_bytes += <uint64_t> body_bytes
    totals.sizes[bucket_from(<uint64_t> body_bytes, FIRST_BOUND_BYTES)] += 1


cdef void add_part(PartTotals* part, uint64_t part_ns) noexcept nogil:
    """Few requests have most of the parts; those that lack one are counted nowhere."""
    if part_ns:
        part.count += 1
        part.sum_ns += part_ns
        part.buckets[bucket_of(part_ns)] += 1


cdef void add_parts(TimeParts* parts, const RequestTimes* times) noexcept nogil:
    cdef uint64_t idle = times.queued_ns + times.waited_ns
    add_part(&parts.queued, times.queued_ns)
    add_part(&parts.waited, times.waited_ns)
    add_part(&parts.throttled, times.throttled_ns)
    if idle:
        parts.worked[bucket_of(times.total_ns)] -= 1
        parts.worked[bucket_of(times.total_ns - min(idle, times.total_ns))] += 1


cdef void add_answer(TimeParts* parts, const AnswerTimes* times) noexcept nogil:
    cdef int then = bucket_of(times.ready_ns)
    cdef int now = bucket_of(times.ready_ns + times.held_ns + times.sent_ns)
    add_part(&parts.held, times.held_ns)
    parts.sent.count += 1
    parts.sent.sum_ns += times.sent_ns
    parts.sent.buckets[bucket_of(times.sent_ns)] += 1
    if now != then:
        parts.whole[then] -= 1
        parts.whole[now] += 1


cdef object part_row(const PartTotals* part):
    cdef int k
    return part.count, part.sum_ns, tuple([part.buckets[k] for k in range(BUCKETS)])


cdef object parts_row(int api_key, TimeParts* parts):
    cdef int k
    return (api_key,
            (part_row(&parts.queued), part_row(&parts.waited), part_row(&parts.throttled), part_row(&parts.held),
             part_row(&parts.sent)),
            tuple([parts.worked[k] for k in range(BUCKETS)]), tuple([parts.whole[k] for k in range(BUCKETS)]))


cdef inline int slot_of(int api_key) noexcept nogil:
    return api_key if 0 <= api_key < API_SLOTS - 1 else API_SLOTS - 1


cdef class RequestStats:
    """Counts, errors, bytes and times of requests, per API key.

    `codes`: how often an answer, or a partition of an answer to Produce, had an error, by API key and code.
    """

    def __cinit__(self):
        self.codes = {}

    @cython.nonecheck(False)  # self is never None, and the check that debug builds add needs the GIL
    cdef void record(self, int api_key, uint64_t total_ns, Py_ssize_t bytes_in, Py_ssize_t body_bytes,
                     Py_ssize_t bytes_out) noexcept nogil:
        cdef ApiTotals* totals = &self.totals[slot_of(api_key)]
        totals.bytes_in += <uint64_t>bytes_in
        totals.bytes_out += <uint64_t>bytes_out
        add_request(totals, total_ns, body_bytes)

    @cython.nonecheck(False)
    cdef void record_parts(self, int api_key, const RequestTimes* times) noexcept nogil:
        """How a request that was recorded has spent its time."""
        add_parts(&self.parts[slot_of(api_key)], times)

    @cython.nonecheck(False)
    cdef void record_follower(self, const RequestTimes* times, Py_ssize_t body_bytes) noexcept nogil:
        """A fetch that was recorded is a follower's."""
        add_request(&self.from_followers, times.total_ns, body_bytes)
        add_parts(&self.parts_of_followers, times)

    @cython.nonecheck(False)
    cdef void record_answer(self, int api_key, bint by_follower, const AnswerTimes* times) noexcept nogil:
        """The socket has taken all of an answer to a request that was recorded."""
        add_answer(&self.parts[slot_of(api_key)], times)
        if by_follower:
            add_answer(&self.parts_of_followers, times)

    cdef int count_code(self, int api_key, int code) except -1:
        cdef tuple key = (api_key, code)
        self.codes[key] = self.codes.get(key, 0) + 1
        return 0

    @cython.nonecheck(False)
    cdef void count_error(self, int api_key) noexcept nogil:
        self.totals[slot_of(api_key)].errors += 1

    def add(self, int api_key, uint64_t total_ns, Py_ssize_t bytes_in, Py_ssize_t bytes_out, Py_ssize_t body_bytes=0):
        """`record`, for callers in Python."""
        if bytes_in < 0 or bytes_out < 0 or body_bytes < 0:
            raise ValueError("a request has no negative size")
        self.record(api_key, total_ns, bytes_in, body_bytes, bytes_out)

    def add_parts(self, int api_key, uint64_t total_ns, uint64_t waited_ns, uint64_t queued_ns=0,
                  uint64_t throttled_ns=0, bint by_follower=False):
        """`record_parts` and `record_follower`, for callers in Python."""
        cdef RequestTimes times = RequestTimes(total_ns, queued_ns, waited_ns, throttled_ns)
        self.record_parts(api_key, &times)
        if by_follower:
            self.record_follower(&times, 0)

    def add_answer(self, int api_key, uint64_t ready_ns, uint64_t held_ns, uint64_t sent_ns, bint by_follower=False):
        """`record_answer`, for callers in Python."""
        cdef AnswerTimes times = AnswerTimes(ready_ns, held_ns, sent_ns)
        self.record_answer(api_key, by_follower, &times)

    def add_code(self, int api_key, int code):
        """An answer had an error."""
        self.count_code(api_key, code)

    def parts_by_api(self, tuple also=()):
        """One tuple per API seen, and for those of `also`: (api_key, a (count, sum_ns, buckets) for each of PARTS,
        worked, whole)."""
        cdef int slot
        return [
            parts_row(slot if slot < API_SLOTS - 1 else -1, &self.parts[slot])
            for slot in range(API_SLOTS) if self.totals[slot].count or slot in also
        ]

    def sizes_by_api(self, tuple also=()):
        """One tuple per API seen, and for those of `also`: (api_key, count, bytes without headers, buckets)."""
        cdef int slot, k
        return [
            (slot if slot < API_SLOTS - 1 else -1, self.totals[slot].count, self.totals[slot].body_bytes,
             tuple([self.totals[slot].sizes[k] for k in range(BUCKETS)]))
            for slot in range(API_SLOTS) if self.totals[slot].count or slot in also
        ]

    def followers(self):
        """Of followers' fetches: (count, sum_ns, buckets), and the rows of `parts_by_api` and `sizes_by_api`."""
        cdef int k
        cdef ApiTotals* totals = &self.from_followers
        return ((totals.count, totals.sum_ns, tuple([totals.buckets[k] for k in range(BUCKETS)])),
                parts_row(1, &self.parts_of_followers),
                (1, totals.count, totals.body_bytes, tuple([totals.sizes[k] for k in range(BUCKETS)])))

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
        return self.totals[slot_of(api_key)].count

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
