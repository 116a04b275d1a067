"""Shared work of a helper pool whose pieces sleep, and work for a thread that does nothing."""

from posix.types cimport off_t

from kbroker._fast.base.helper_pool cimport HelperPool
from kbroker._fast.net.send_threads cimport SendThreads

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int nanosleep(const timespec* wanted, timespec* left)

cdef enum:
    MOST_PIECES = 64

cdef struct SleepingPiece:
    int times
    int worker
    long nanoseconds


cdef void sleep(void* item, int worker) noexcept nogil:
    cdef SleepingPiece* piece = <SleepingPiece*> item
    cdef timespec wanted
    piece.times += 1
    piece.worker = worker
    if piece.nanoseconds:
        wanted.tv_sec = 0
        wanted.tv_nsec = piece.nanoseconds
        nanosleep(&wanted, NULL)


def share_sleeping_pieces(HelperPool helper_pool not None, int count, int helpers, long nanoseconds=0):
    """Shares `count` pieces with at most `helpers` threads: how often each was done, and by which worker."""
    cdef SleepingPiece[MOST_PIECES] pieces
    cdef (void*)[MOST_PIECES] items
    cdef int index
    if not 0 <= count <= MOST_PIECES:
        raise ValueError(f"{count} pieces")
    for index in range(count):
        pieces[index] = SleepingPiece(0, 0, nanoseconds)
        items[index] = &pieces[index]
    helper_pool.share(sleep, items, count, helpers)
    return [(pieces[index].times, pieces[index].worker) for index in range(count)]


cdef ssize_t nothing(void* what, int out_fd, int fd, off_t position, size_t size) noexcept nogil:
    return 0


def lend_nothing(SendThreads threads not None, user):
    """Whether a thread was given a call that does nothing."""
    return threads.give(user, -1, None, 0, 0, nothing, NULL)
