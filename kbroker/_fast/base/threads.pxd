"""POSIX threads that know nothing of Python."""

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    """

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_attr_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_attr_init(pthread_attr_t* attributes)
    int pthread_attr_setstacksize(pthread_attr_t* attributes, size_t size)
    int pthread_attr_destroy(pthread_attr_t* attributes)
    int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*) noexcept nogil, void*)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)
    int pthread_cond_destroy(pthread_cond_t* condition)
    pthread_t pthread_self()
    int pthread_setname_np(pthread_t thread, const char* name)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t* signals)
    int pthread_sigmask(int how, const sigset_t* signals, sigset_t* before)
    int SIG_SETMASK


cdef inline bint start_thread(
    pthread_t* thread, void* (*work)(void*) noexcept nogil, void* argument, size_t stack_bytes
) noexcept:
    """Whether there is a thread now that does `work`; signals, being Python's affair, never reach it."""
    cdef pthread_attr_t attributes
    cdef sigset_t everything, before
    cdef int outcome
    sigfillset(&everything)
    pthread_attr_init(&attributes)
    pthread_attr_setstacksize(&attributes, stack_bytes)
    pthread_sigmask(SIG_SETMASK, &everything, &before)
    outcome = pthread_create(thread, &attributes, work, argument)
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    pthread_attr_destroy(&attributes)
    return outcome == 0


cdef inline void end_threads(
    pthread_mutex_t* lock, pthread_cond_t* waited_for, bint* stopping, pthread_t* threads, int count
) noexcept:
    """Has threads that look for `stopping` under `lock` end, waits for them, and ends lock and condition, too."""
    cdef int index
    with nogil:
        pthread_mutex_lock(lock)
        stopping[0] = True
        pthread_cond_broadcast(waited_for)
        pthread_mutex_unlock(lock)
        for index in range(count):
            pthread_join(threads[index], NULL)
    pthread_mutex_destroy(lock)
    pthread_cond_destroy(waited_for)
