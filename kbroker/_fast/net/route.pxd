from kbroker._fast.net.answer_memo cimport AnswerMemo
from kbroker._fast.net.busy_poll cimport BusyPoll
from kbroker._fast.base.counters cimport RequestStats
from kbroker._fast.base.ready_queue cimport ReadyQueue
from kbroker._fast.net.direct cimport DirectAnswers
from kbroker._fast.gate.gate cimport Gatekeeper
from kbroker._fast.net.reactor cimport Reactor
from kbroker._fast.net.receive_buffer cimport BufferPool
from kbroker._fast.net.send_threads cimport SendThreads
from kbroker._fast.net.flush_batch cimport FlushBatch

cdef enum:
    API_KEYS = 128


cdef class Route:
    cdef readonly int api_key
    cdef readonly int min_version
    cdef readonly int max_version
    cdef readonly bint cacheable
    cdef readonly int asks
    cdef bint keeps_frame
    cdef object handle
    cdef DirectAnswers direct
    cdef object compile_request
    cdef object compile_response
    cdef list decoders
    cdef list encoders
    cdef object throttle_at
    cdef object limits_at
    cdef readonly int header_flexible_from
    cdef readonly int answer_flexible_from

    cdef object decoder(self, int version)
    cdef object decoding(self, int version)
    cdef object encoder(self, int version)


cdef class Endpoint:
    cdef readonly str listener_name
    cdef readonly Reactor reactor
    cdef readonly object services
    cdef public Gatekeeper gatekeeper
    cdef readonly BufferPool pool
    cdef readonly RequestStats stats
    cdef readonly AnswerMemo answers
    cdef readonly BusyPoll busy_poll
    cdef readonly SendThreads send_threads
    cdef list routes
    cdef object loop
    cdef object owner
    cdef readonly Py_ssize_t max_frame_bytes
    cdef readonly Py_ssize_t first_frame_bytes
    cdef readonly set connections
    cdef public bint draining
    cdef readonly FlushBatch flush_batch
    cdef readonly ReadyQueue ready
