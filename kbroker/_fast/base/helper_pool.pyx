"""Threads that take their share of what an iteration of the loop has to do.

The kernel does much of an append: it copies into the page cache, and finds and locks the pages of the file.  A loop
that met several such pieces in one iteration would do one after the other while other processors have nothing to do.
So it shares them: every thread, the loop's own as well, takes the next piece until none is left, and the loop goes on
when all are done.

The loop never waits for a thread that has begun no piece: when other processes occupy the processors, the loop does
every piece itself, at the price of a signal.  The threads access C structs only, never Python objects.  The loop keeps
the GIL meanwhile, so no other thread changes state that the pieces rely upon.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from kbroker._fast.base.threads cimport (
    end_threads,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_t,
    pthread_cond_wait,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
    pthread_self,
    pthread_setname_np,
    pthread_t,
    start_thread,
)

cdef extern from *:
    """
    #include <stdint.h>
    static inline uint64_t kb_load_acquire(const uint64_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
    static inline void kb_store_release(uint64_t* at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
    static inline void kb_subtract_one(uint64_t* at) { __atomic_sub_fetch(at, 1, __ATOMIC_ACQ_REL); }
    static inline void kb_add_one(uint64_t* at) { __atomic_add_fetch(at, 1, __ATOMIC_RELAXED); }
    static inline int kb_replace(uint64_t* at, uint64_t old, uint64_t value)
    {
        return __atomic_compare_exchange_n(at, &old, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    static inline void kb_pause(void)
    {
    #if defined(__x86_64__)
        __builtin_ia32_pause();
    #elif defined(__aarch64__)
        __asm__ volatile("yield");
    #endif
    }
    """
    uint64_t kb_load_acquire(const uint64_t* at) nogil
    void kb_store_release(uint64_t* at, uint64_t value) nogil
    void kb_subtract_one(uint64_t* at) nogil
    void kb_add_one(uint64_t* at) nogil
    bint kb_replace(uint64_t* at, uint64_t old, uint64_t value) nogil
    void kb_pause() nogil

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int nanosleep(const timespec* wanted, timespec* left)

cdef enum:
    STACK_BYTES = 262144
    MOST_PIECES = 65535
    # For so many pauses, some 50 us, the loop waits awake for the last pieces; then a thread waits for a disk or for a
    # processor, and the loop looks again in so many nanoseconds.
    PAUSES = 2000
    LOOK_AGAIN_NS = 50000

cdef struct SharedWork:
    pthread_mutex_t lock
    pthread_cond_t called
    pthread_t threads[MOST_WORKERS]
    int started
    int asleep
    bint stopping
    # The number of the shared work, its count of pieces and the next of them, in 32, 16 and 16 bits: the thread that
    # replaces it by the same with the next piece has that piece, and the work cannot end before the piece is done.
    uint64_t ticket
    uint64_t unfinished
    uint64_t helped
    Piece piece
    void** items


cdef inline bint has_next(uint64_t ticket) noexcept nogil:
    return (ticket & 0xFFFF) < ((ticket >> 16) & 0xFFFF)


cdef bint take_one(SharedWork* self, int worker) noexcept nogil:
    """Does the next piece; False when there is none."""
    cdef uint64_t ticket = kb_load_acquire(&self.ticket)
    while has_next(ticket):
        if kb_replace(&self.ticket, ticket, ticket + 1):
            self.piece(self.items[ticket & 0xFFFF], worker)
            if worker:
                kb_add_one(&self.helped)
            kb_subtract_one(&self.unfinished)
            return True
        ticket = kb_load_acquire(&self.ticket)
    return False


cdef void* work(void* argument) noexcept nogil:
    cdef SharedWork* self = <SharedWork*> argument
    cdef int worker
    pthread_setname_np(pthread_self(), "kbroker-helper")
    pthread_mutex_lock(&self.lock)
    self.started += 1
    worker = self.started
    while not self.stopping:
        if has_next(kb_load_acquire(&self.ticket)):
            pthread_mutex_unlock(&self.lock)
            while take_one(self, worker):
                pass
            pthread_mutex_lock(&self.lock)
        else:
            self.asleep += 1
            pthread_cond_wait(&self.called, &self.lock)
            self.asleep -= 1
    pthread_mutex_unlock(&self.lock)
    return NULL


cdef class HelperPool:
    """At most `limit` threads beside the loop's.  The first work that wants one starts it.

    `draw`: where there are no threads, as on virtual time, `draw(count, limit)` says in which order the pieces are
    done, and as which worker each; None: threads do them.
    """

    def __cinit__(self):
        self.shared = NULL

    def __init__(self, int limit):
        self.change(limit)

    def __dealloc__(self):
        self._stop()

    def change(self, int limit) -> None:
        """Let there be so many threads.  Those that are there already are not called, when they are too many."""
        if limit < 0:
            raise ValueError(f"{limit} threads")
        self.limit = min(limit, MOST_WORKERS - 1)

    @property
    def helped_count(self) -> int:
        """How many pieces other threads than the loop's have done."""
        return kb_load_acquire(&self.shared.helped) if self.shared != NULL else 0

    cdef int share(self, Piece piece, void** items, int count, int helpers) except -1:
        """`piece(item, worker)` for each of `items`, by this thread (worker 0), so many others that are called, and any
        that still are awake; when it returns all are done.  One thread alone may call it; the interpreter's lock is
        kept."""
        cdef SharedWork* shared
        cdef int index
        cdef uint64_t ticket
        cdef timespec again = timespec(0, LOOK_AGAIN_NS)
        if self.draw is not None:
            return self._share_as_drawn(piece, items, count)
        helpers = min(helpers, self.limit, count - 1)
        if helpers <= 0 or count > MOST_PIECES or not self._ready(helpers):
            for index in range(count):
                piece(items[index], 0)
            return 0
        shared = self.shared
        shared.piece = piece
        shared.items = items
        kb_store_release(&shared.unfinished, <uint64_t> count)
        ticket = (kb_load_acquire(&shared.ticket) >> 32) + 1
        kb_store_release(&shared.ticket, ticket << 32 | <uint64_t> count << 16)
        # A thread that sleeps now looked before the ticket was there; one that does not will see it.
        pthread_mutex_lock(&shared.lock)
        helpers = min(helpers, shared.asleep)
        pthread_mutex_unlock(&shared.lock)
        for _ in range(helpers):
            pthread_cond_signal(&shared.called)
        while take_one(shared, 0):
            pass
        index = 0
        while kb_load_acquire(&shared.unfinished):
            index += 1
            if index < PAUSES:
                kb_pause()
            else:
                nanosleep(&again, NULL)
        return 0

    cdef int _share_as_drawn(self, Piece piece, void** items, int count) except -1:
        cdef int index, worker
        for index, worker in self.draw(count, self.limit):
            piece(items[index], worker)
        return 0

    cdef bint _ready(self, int helpers) except -1:
        """Whether there is a thread to help."""
        if self.shared == NULL:
            self.shared = <SharedWork*> calloc(1, sizeof(SharedWork))
            if self.shared == NULL:
                return False
            pthread_mutex_init(&self.shared.lock, NULL)
            pthread_cond_init(&self.shared.called, NULL)
        while self.running < helpers and self._add_thread():
            pass
        return self.running > 0

    cdef bint _add_thread(self) except -1:
        cdef bint started = start_thread(&self.shared.threads[self.running], work, self.shared, STACK_BYTES)
        self.running += started
        return started

    def close(self) -> None:
        """End the threads.  What is shared from now on this thread does itself."""
        self._stop()
        self.limit = 0

    cdef void _stop(self):
        cdef SharedWork* shared = self.shared
        self.shared = NULL
        if shared == NULL:
            return
        end_threads(&shared.lock, &shared.called, &shared.stopping, shared.threads, self.running)
        self.running = 0
        free(shared)
