"""The functions of OpenSSL that C calls, found at run time in the library that the package `cryptography` carries.

`load` fills the table; nothing is linked, so neither a compiler nor headers of OpenSSL are needed, and a broker without
TLS never loads it.  A test can put its own functions there.
"""

cdef struct TlsCalls:
    void* (*new_stream)(void* context) noexcept nogil
    void (*free_stream)(void* stream) noexcept nogil
    void (*set_accept_state)(void* stream) noexcept nogil
    void (*set_memory)(void* stream, void* incoming, void* outgoing) noexcept nogil
    int (*shake_hands)(void* stream) noexcept nogil
    int (*read)(void* stream, void* room, int size) noexcept nogil
    int (*write)(void* stream, const void* data, int size) noexcept nogil
    int (*pending)(void* stream) noexcept nogil
    int (*shut_down)(void* stream) noexcept nogil
    int (*error_of)(void* stream, int outcome) noexcept nogil
    const char* (*version_of)(void* stream) noexcept nogil
    void* (*cipher_of)(void* stream) noexcept nogil
    const char* (*name_of_cipher)(void* cipher) noexcept nogil
    int (*was_resumed)(void* stream) noexcept nogil
    const void* (*memory_kind)() noexcept nogil
    void* (*new_memory)(const void* kind) noexcept nogil
    void* (*memory_of)(const void* data, int size) noexcept nogil
    long (*set_end)(void* memory, int outcome) noexcept nogil
    int (*take)(void* memory, void* room, int size) noexcept nogil
    long (*content)(void* memory, char** data) noexcept nogil
    int (*free_memory)(void* memory) noexcept nogil
    unsigned long (*next_error)() noexcept nogil
    void (*clear_errors)() noexcept nogil
    const char* (*reason_of)(unsigned long error) noexcept nogil

cdef TlsCalls tls_calls
