from kbroker._fast.records.native_codecs cimport Codecs


cdef Codecs* borrow_codecs() except NULL
cdef void give_back_codecs(Codecs* codecs) noexcept
