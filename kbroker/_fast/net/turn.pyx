"""What is left to the end of a turn of the loop: requests that are answered together, answers that are sent together.

A turn in which several clients are heard is crowded, and so, it is taken, is the next one.  There, each `send` to a
client that sleeps wakes it up, the dearest part of a small answer; several in a row wake it once, and it finds the
other answers while it is at work.  And what several clients append to one log is written at once.  With one request in
a turn waiting would only cost time; but a few consumers who wait for what a producer has sent get it before he hears.
"""

from kbroker._fast.net.busy_poll cimport BusyPoll
from kbroker._fast.base.crew cimport Crew
from kbroker._fast.net.direct cimport ASKED_TOGETHER, Asked, DirectAnswers
from kbroker._fast.log.log_fields cimport PurgatoryFields
from kbroker._fast.net.receiver cimport Receiver

cdef enum:
    # Of so many answers sent at once, one is held back to see whether the turn brings others.
    PROBE = 16
    # Larger requests are not held back: alone they are as cheap, and their memory is wanted.
    ASKED_BYTES = 65536


cdef class Turn:
    """One for each listener; `loop` needs `call_soon` alone."""

    def __init__(self, loop, services, BusyPoll busy_poll, Crew crew not None, PurgatoryFields purgatory=None):
        self.loop = loop
        self.services = services
        self.busy_poll = busy_poll
        self.crew = crew
        self.purgatory = PurgatoryFields() if purgatory is None else purgatory
        self.postponed = []
        self.askers = []

    cdef bint postpone(self, Receiver connection) except -1:
        """Whether the connection's answers leave at the end of this turn of the loop, together with those of others.

        A turn with one answer ends this, and one answer in PROBE is held back to see whether it is alone, unless that
        is known.  If a few consumers wait to be told what came in a turn that is not crowded, they are told first.
        """
        if not self.crowded and not self.purgatory.due:
            if self.busy_poll.one_alone():
                return False
            self.alone += 1
            if self.alone < PROBE:
                return False
        self.postponed.append(connection)
        self._end_later()
        return True

    cdef bint ask_later(self, Receiver connection, DirectAnswers direct, const Asked* asked) except -1:
        """Whether the request is answered with others, by `connection.finish`, at the end of this turn at the latest.

        Its bytes lie in the connection's buffer, which must keep them until then.
        """
        if not self.crowded or asked.size > ASKED_BYTES or not direct.may_wait(asked):
            return False
        if len(self.askers) == ASKED_TOGETHER or (self.askers and self.direct is not direct):
            self.answer_asked()
        self._end_later()
        self.direct = direct
        self.asked[len(self.askers)] = asked[0]
        self.askers.append(connection)
        return True

    cdef int answer_asked(self) except -1:
        """Answer what was put off; the answers leave at the end of the turn."""
        cdef list askers = self.askers
        cdef list answers
        cdef Receiver connection
        cdef int index
        if not askers:
            return 0
        self.askers = []
        try:
            answers = self.direct.answer_all(self.services, self.asked, len(askers), self.crew)
        except Exception as error:
            for connection in askers:
                connection.give_up(error)
            return 0
        for index, connection in enumerate(askers):
            if isinstance(answers[index], Exception):
                connection.give_up(answers[index])
                continue
            try:
                connection.finish(answers[index])
                self.postponed.append(connection)
            except Exception as error:
                connection.give_up(error)
        return 0

    cdef int _end_later(self) except -1:
        if not self.ending:
            self.loop.call_soon(self.end)
            self.ending = True
        return 0

    def end(self) -> None:
        """Answer and send what this turn's requests ask for."""
        cdef list connections
        self.ending = False
        self.answer_asked()
        connections = self.postponed
        self.postponed = []
        self.crowded = len(connections) > 1
        self.alone = 0
        for connection in connections:
            connection.resume_sending()
        self.busy_poll.served()
