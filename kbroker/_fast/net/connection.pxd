from kbroker._fast.net.answer_queue cimport AnswerQueue
from kbroker._fast.net.connection_interface cimport ConnectionInterface
from kbroker._fast.net.connection_states cimport LifeState
from kbroker._fast.net.frame_reader cimport FrameReader
from kbroker._fast.net.request_server cimport RequestServer
from kbroker._fast.net.route cimport Endpoint
from kbroker._fast.net.socket_part cimport SocketPart


cdef class Connection(ConnectionInterface):
    cdef readonly Endpoint endpoint
    cdef readonly SocketPart socket
    cdef FrameReader frames
    cdef RequestServer requests
    cdef AnswerQueue answers
    cdef object _session
    # Whether frames are left to a later turn of the loop, as enough was served in this one.
    cdef bint resting

    cdef int _process(self) except -1
    cdef bint _may_have_frames(self) noexcept
    cdef int _send_and_settle(self) except -1
    cdef int _answer(self, object ctx, object response, bint encoded) except -1
    cdef int _live_on(self, LifeState then) except -1
