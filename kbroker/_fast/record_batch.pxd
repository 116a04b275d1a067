from libc.stdint cimport uint8_t

from kbroker._fast.batch_info cimport BatchInfo


cdef BatchInfo sound_batch(const uint8_t* data, Py_ssize_t size)
