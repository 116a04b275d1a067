cdef void leave_broker() noexcept nogil
cdef void enter_broker() noexcept nogil
"""What runs between the two counts no more: it is not the broker's."""
