"""librdkafka as another module has loaded it, found at run time: nothing is linked, no header file is needed.

`Library(path)` takes the file of a shared object that is loaded already and depends on librdkafka, such as
confluent-kafka's own extension, and looks the functions up in it and in its dependencies.  They are thus those of the
library that is loaded already, whether a wheel or the system brought it.
"""

from libc.string cimport memset

cdef extern from "<dlfcn.h>" nogil:
    int RTLD_LAZY
    int RTLD_NOLOAD
    void* dlopen(const char* path, int flags)
    void* dlsym(void* handle, const char* name)
    char* dlerror()

NAMES = (
    b"rd_kafka_conf_new", b"rd_kafka_conf_destroy", b"rd_kafka_conf_set", b"rd_kafka_conf_set_events",
    b"rd_kafka_new", b"rd_kafka_destroy", b"rd_kafka_topic_new", b"rd_kafka_topic_destroy", b"rd_kafka_metadata",
    b"rd_kafka_metadata_destroy", b"rd_kafka_produceva", b"rd_kafka_error_code", b"rd_kafka_error_destroy",
    b"rd_kafka_headers_new", b"rd_kafka_header_add", b"rd_kafka_headers_destroy", b"rd_kafka_queue_get_main",
    b"rd_kafka_queue_destroy", b"rd_kafka_queue_poll", b"rd_kafka_event_type", b"rd_kafka_event_message_next",
    b"rd_kafka_event_error", b"rd_kafka_event_destroy", b"rd_kafka_outq_len", b"rd_kafka_purge",
    b"rd_kafka_fatal_error", b"rd_kafka_version_str",
)


class LibraryError(Exception):
    """librdkafka is not there, or lacks a function."""


cdef class Library:
    """See the module's text.  `version` is the library's own, such as "2.16.0".  Raises LibraryError."""

    def __cinit__(self, str path):
        cdef void** places = <void**>&self.functions
        cdef void* handle
        cdef int at = 0
        assert sizeof(Functions) == len(NAMES) * sizeof(void*)
        memset(&self.functions, 0, sizeof(Functions))
        # The caller has loaded it already, and Python never unloads modules: the handle needs no end.
        handle = dlopen(path.encode(), RTLD_LAZY | RTLD_NOLOAD)
        if handle == NULL:
            raise LibraryError(f"{path} is not loaded")
        for name in NAMES:
            places[at] = dlsym(handle, name)
            if places[at] == NULL:
                raise LibraryError(f"{path} brings no {name.decode()}: librdkafka 1.6 or newer is needed")
            at += 1
        self.version = self.functions.version_str().decode()
