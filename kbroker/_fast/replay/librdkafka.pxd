"""librdkafka's public C interface, as far as the replay uses it: see `librdkafka.pyx`.

The shapes are those of its header, which have been the same since `rd_kafka_produceva` (1.6): a message, and one
argument of that function.  Handles are opaque.
"""

from libc.stdint cimport int32_t, int64_t

ctypedef void Client
ctypedef void Settings
ctypedef void Topic
ctypedef void Queue
ctypedef void Event
ctypedef void Error
ctypedef void Headers
ctypedef void Metadata

cdef enum:
    PRODUCER_TYPE = 0
    SETTING_OK = 0
    ARGUMENT_TOPIC = 2
    ARGUMENT_PARTITION = 3
    ARGUMENT_VALUE = 4
    ARGUMENT_KEY = 5
    ARGUMENT_OPAQUE = 6
    ARGUMENT_HEADERS = 10
    EVENT_DELIVERIES = 0x1
    EVENT_ERROR = 0x8
    PURGE_QUEUE = 0x1
    PURGE_IN_FLIGHT = 0x2
    ERROR_FATAL = -150
    ERROR_QUEUE_FULL = -184


cdef struct Message:
    int code
    Topic* topic
    int32_t partition
    void* value
    size_t value_bytes
    void* key
    size_t key_bytes
    int64_t offset
    void* opaque


cdef struct Memory:
    const void* start
    size_t size


cdef union ArgumentValue:
    Memory memory
    void* pointer
    int32_t number
    char[64] room


cdef struct Argument:
    int kind
    ArgumentValue value


# In the order of NAMES in librdkafka.pyx.
cdef struct Functions:
    Settings* (*conf_new)() noexcept nogil
    void (*conf_destroy)(Settings*) noexcept nogil
    int (*conf_set)(Settings*, const char*, const char*, char*, size_t) noexcept nogil
    void (*conf_set_events)(Settings*, int) noexcept nogil
    Client* (*new_client)(int, Settings*, char*, size_t) noexcept nogil
    void (*destroy)(Client*) noexcept nogil
    Topic* (*topic_new)(Client*, const char*, void*) noexcept nogil
    void (*topic_destroy)(Topic*) noexcept nogil
    int (*metadata)(Client*, int, Topic*, const Metadata**, int) noexcept nogil
    void (*metadata_destroy)(const Metadata*) noexcept nogil
    Error* (*produceva)(Client*, const Argument*, size_t) noexcept nogil
    int (*error_code)(const Error*) noexcept nogil
    void (*error_destroy)(Error*) noexcept nogil
    Headers* (*headers_new)(size_t) noexcept nogil
    int (*header_add)(Headers*, const char*, Py_ssize_t, const void*, Py_ssize_t) noexcept nogil
    void (*headers_destroy)(Headers*) noexcept nogil
    Queue* (*queue_get_main)(Client*) noexcept nogil
    void (*queue_destroy)(Queue*) noexcept nogil
    Event* (*queue_poll)(Queue*, int) noexcept nogil
    int (*event_type)(const Event*) noexcept nogil
    const Message* (*event_message_next)(Event*) noexcept nogil
    int (*event_error)(Event*) noexcept nogil
    void (*event_destroy)(Event*) noexcept nogil
    int (*outq_len)(Client*) noexcept nogil
    int (*purge)(Client*, int) noexcept nogil
    int (*fatal_error)(Client*, char*, size_t) noexcept nogil
    const char* (*version_str)() noexcept nogil


cdef class Library:
    cdef Functions functions
    cdef readonly str version
