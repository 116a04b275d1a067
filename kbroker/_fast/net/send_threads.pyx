"""Threads that send large ranges of files while the loop serves others.

`sendfile` of a megabyte takes some 100 us, all of it in the kernel: copying on a network card's behalf, on loopback the
whole way to the receiver.  When several clients read much at once, a loop alone would send to one of them at a time.
So the loop hands ranges to this pool: a thread makes the one call `sendfile(socket, file)`, and the loop goes on with
the rest of the answer when the thread is done.  The threads know descriptors and numbers alone, never Python's objects.

A range is handed over only if the loop could have sent it itself without waiting (its pages were probed, and the socket
does not block), and only if another connection has sent as much a moment ago: a single reader is served soonest by the
loop.  The first range that is lent starts the first thread.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from posix.types cimport off_t

from kbroker._fast.base.monotonic cimport now_ns
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
from kbroker._fast.net.socket_calls cimport socket_calls

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_NONBLOCK, EFD_CLOEXEC

cdef extern from "<fcntl.h>" nogil:
    int fcntl(int fd, int command, ...)
    int F_DUPFD_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int c_close "close" (int fd)
    ssize_t c_read "read" (int fd, void* buffer, size_t size)
    ssize_t c_write "write" (int fd, const void* buffer, size_t size)

cdef enum:
    MOST_THREADS = 8
    # Waiting, under way and done together; the loop learns of what is done once in a turn.
    MOST_JOBS = 64
    # Ranges from this size on are worth a thread's waking up.
    LEND_BYTES = 262144
    # Another connection that sent a large range no longer ago than this is one to be served beside.
    RECENT_NS = 2000000

cdef struct Job:
    int out_fd
    int fd
    off_t position
    size_t size
    ssize_t sent
    # NULL: `sendfile`.
    Work call
    void* what

cdef struct Pool:
    pthread_mutex_t lock
    pthread_cond_t ready
    pthread_t threads[MOST_THREADS]
    Job jobs[MOST_JOBS]
    # Numbers of jobs: a ring of what waits for a thread, and what waits for the loop.
    int waiting[MOST_JOBS]
    int waiting_head
    int waiting_count
    int done[MOST_JOBS]
    int done_count
    int event_fd
    bint stopping


cdef void do_job(Pool* pool) noexcept nogil:
    """Send what has waited longest.  `pool.lock` is held, but not while it is sent."""
    cdef uint64_t one = 1
    cdef int number = pool.waiting[pool.waiting_head]
    cdef Job* job = &pool.jobs[number]
    cdef off_t position = job.position
    cdef ssize_t sent
    pool.waiting_head = (pool.waiting_head + 1) % MOST_JOBS
    pool.waiting_count -= 1
    pthread_mutex_unlock(&pool.lock)
    if job.call != NULL:
        sent = job.call(job.what, job.out_fd, job.fd, position, job.size)
    else:
        sent = socket_calls.sendfile(job.out_fd, job.fd, &position, job.size)
        while sent < 0 and errno == EINTR:
            sent = socket_calls.sendfile(job.out_fd, job.fd, &position, job.size)
    job.sent = sent
    pthread_mutex_lock(&pool.lock)
    pool.done[pool.done_count] = number
    pool.done_count += 1
    if pool.done_count == 1:
        # The loop takes all that are done at once.
        c_write(pool.event_fd, &one, sizeof(one))


cdef void* work(void* argument) noexcept nogil:
    cdef Pool* pool = <Pool*> argument
    pthread_setname_np(pthread_self(), "kbroker-send")
    pthread_mutex_lock(&pool.lock)
    while True:
        while pool.waiting_count == 0 and not pool.stopping:
            pthread_cond_wait(&pool.ready, &pool.lock)
        if pool.stopping:
            break
        do_job(pool)
    pthread_mutex_unlock(&pool.lock)
    return NULL


cdef class SendThreads:
    """At most `limit` threads for the connections of one loop; 0 lends nothing.

    The user of what is lent is called when it is done: `user.helped(sent)` with the bytes that the socket took, or
    less than 0 where the call failed, which the loop's own attempt will find out about.

    Ranges below `least_bytes` are not lent: waking a thread costs more than sending them.  Sockets that encrypt have
    their own call made in the place of `sendfile`, with what it needs (`give`).  With a `runner` there are no
    threads: it is notified of each job and calls `do_next`, as a loop on virtual time does.  None: threads do the jobs.
    """

    def __cinit__(self):
        self.pool = NULL
        self.least_bytes = LEND_BYTES

    def __init__(self, loop, int limit, size_t stack_bytes=65536):
        self.loop = loop
        self.stack_bytes = stack_bytes
        self.owners = [None] * MOST_JOBS
        self.change(limit)

    def __dealloc__(self):
        self._stop()

    def change(self, int limit) -> None:
        """Set the number of threads.  Threads beyond it stay, and wait without work."""
        if limit < 0:
            raise ValueError(f"{limit} threads")
        self.limit = min(limit, MOST_THREADS)

    cdef bint take(self, object user, int out_fd, FileRegion region, off_t position, size_t size, Work call,
                   void* what) except -1:
        """Whether a thread sends this range.  `region` and a descriptor of its own of the socket are kept open."""
        cdef uint64_t now = now_ns()
        cdef bint beside = self.last_user != <void*> user and now - self.last_ns < RECENT_NS
        if self.limit == 0:
            return False
        self.last_user = <void*> user
        self.last_ns = now
        return beside and self.give(user, out_fd, region, position, size, call, what)

    cdef bint give(self, object user, int out_fd, FileRegion region, off_t position, size_t size, Work call,
                   void* what) except -1:
        """Whether a thread does this, even though no other connection sends; without a region it is the call alone."""
        cdef Job* job
        cdef int number, own_fd = -1
        if self.outstanding >= MOST_JOBS:
            return False
        # One may wait for each thread, so that it need not wait itself.
        if (self.running == 0 or self.pool.waiting_count >= self.running) and not self._add_thread():
            return False
        if region is not None:
            own_fd = fcntl(out_fd, F_DUPFD_CLOEXEC, 3)
            if own_fd < 0:
                return False
        for number in range(MOST_JOBS):
            if self.owners[number] is None:
                break
        job = &self.pool.jobs[number]
        job.out_fd = own_fd
        job.fd = -1 if region is None else region.fd
        job.position = position
        job.size = size
        job.call = call
        job.what = what
        self.owners[number] = (user, region)
        self.outstanding += 1
        self.lent_count += 1
        pthread_mutex_lock(&self.pool.lock)
        self.pool.waiting[(self.pool.waiting_head + self.pool.waiting_count) % MOST_JOBS] = number
        self.pool.waiting_count += 1
        pthread_cond_signal(&self.pool.ready)
        pthread_mutex_unlock(&self.pool.lock)
        if self.runner is not None:
            self.runner(self)
        return True

    cdef bint _start(self) except -1:
        """Whether there is what threads need; not when the process may open no more files."""
        cdef Pool* pool = <Pool*> calloc(1, sizeof(Pool))
        cdef int number
        if pool == NULL:
            return False
        pool.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if pool.event_fd < 0:
            free(pool)
            return False
        pthread_mutex_init(&pool.lock, NULL)
        pthread_cond_init(&pool.ready, NULL)
        for number in range(MOST_JOBS):
            pool.jobs[number].out_fd = -1
        self.pool = pool
        self.loop.add_reader(pool.event_fd, self.collect)
        return True

    cdef bint _add_thread(self) except -1:
        cdef bint started
        if self.running >= self.limit or (self.pool == NULL and not self._start()):
            return False
        if self.runner is not None:
            self.running += 1
            return True
        started = start_thread(&self.pool.threads[self.running], work, self.pool, self.stack_bytes)
        self.running += started
        self.threads += started
        return started

    cdef void forget(self, object user) noexcept:
        """A user sends no more: the next one may be where it was in memory, and is another one all the same."""
        if self.last_user == <void*> user:
            self.last_user = NULL

    def do_next(self) -> None:
        """Do a job in the place of a thread, if one waits."""
        if self.pool == NULL:
            return
        pthread_mutex_lock(&self.pool.lock)
        if self.pool.waiting_count:
            do_job(self.pool)
        pthread_mutex_unlock(&self.pool.lock)

    def collect(self) -> None:
        """Tell the users of what is done."""
        cdef uint64_t ignored
        cdef int done[MOST_JOBS]
        cdef int count, index, number
        cdef list finished = []
        if self.pool == NULL:
            return
        pthread_mutex_lock(&self.pool.lock)
        c_read(self.pool.event_fd, &ignored, sizeof(ignored))
        count = self.pool.done_count
        for index in range(count):
            done[index] = self.pool.done[index]
        self.pool.done_count = 0
        pthread_mutex_unlock(&self.pool.lock)
        for index in range(count):
            number = done[index]
            if self.pool.jobs[number].out_fd >= 0:
                c_close(self.pool.jobs[number].out_fd)
                self.pool.jobs[number].out_fd = -1
            finished.append((self.owners[number][0], self.pool.jobs[number].sent))
            self.owners[number] = None
            self.outstanding -= 1
        # Each goes on with its answers in a turn of its own, as after a wait for room: many together would keep the
        # loop from all others.  Who is called may lend the next range, or end all this.
        for user, sent in finished[1:]:
            self.loop.call_soon(user.helped, sent)
        for user, sent in finished[:1]:
            user.helped(sent)

    def close(self) -> None:
        """End the threads.  What they have not begun is not sent, and no user is called."""
        if self.pool != NULL:
            self.loop.remove_reader(self.pool.event_fd)
        self._stop()
        self.limit = 0
        self.last_user = NULL
        self.owners = [None] * MOST_JOBS
        self.outstanding = 0

    cdef void _stop(self):
        """Looks at nothing but C's fields: the garbage collector may have cleared the others, and what they had."""
        cdef Pool* pool = self.pool
        cdef int index
        self.pool = NULL
        if pool == NULL:
            return
        end_threads(&pool.lock, &pool.ready, &pool.stopping, pool.threads, self.threads)
        self.running = self.threads = 0
        for index in range(MOST_JOBS):
            if pool.jobs[index].out_fd >= 0:
                c_close(pool.jobs[index].out_fd)
        c_close(pool.event_fd)
        free(pool)
