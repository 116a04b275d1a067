from kbroker._fast.net.busy_poll cimport BusyPoll
from kbroker._fast.base.crew cimport Crew
from kbroker._fast.net.direct cimport ASKED_TOGETHER, Asked, DirectAnswers
from kbroker._fast.log.log_fields cimport PurgatoryFields
from kbroker._fast.net.receiver cimport Receiver


cdef class Turn:
    cdef object loop
    cdef object services
    cdef BusyPoll busy_poll
    cdef Crew crew
    cdef PurgatoryFields purgatory
    cdef list postponed
    cdef list askers
    cdef Asked[ASKED_TOGETHER] asked
    cdef DirectAnswers direct
    cdef bint crowded
    cdef bint ending
    cdef int alone

    cdef bint postpone(self, Receiver connection) except -1
    cdef bint ask_later(self, Receiver connection, DirectAnswers direct, const Asked* asked) except -1
    cdef int answer_asked(self) except -1
    cdef int _end_later(self) except -1
