from kbroker._fast.structs cimport Plan


cdef object decode(Plan plan, object source, Py_ssize_t position, object end, Py_ssize_t* next_position)
