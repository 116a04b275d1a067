"""See `tls_library.pxd`."""

from libc.stdint cimport uintptr_t

from kbroker._fast.tls.tls_library cimport tls_calls

NAMES = (
    "SSL_new",
    "SSL_free",
    "SSL_set_accept_state",
    "SSL_set_bio",
    "SSL_do_handshake",
    "SSL_read",
    "SSL_write",
    "SSL_pending",
    "SSL_shutdown",
    "SSL_get_error",
    "SSL_get_version",
    "SSL_get_current_cipher",
    "SSL_CIPHER_get_name",
    "SSL_session_reused",
    "BIO_s_mem",
    "BIO_new",
    "BIO_new_mem_buf",
    "BIO_set_mem_eof_return",
    "BIO_read",
    "BIO_get_mem_data",
    "BIO_free",
    "ERR_get_error",
    "ERR_clear_error",
    "ERR_reason_error_string",
)


def load(addresses) -> None:
    """Fill the table with the addresses of the functions that `NAMES` lists."""
    (<void**> &tls_calls.new_stream)[0] = <void*> <uintptr_t> addresses["SSL_new"]
    (<void**> &tls_calls.free_stream)[0] = <void*> <uintptr_t> addresses["SSL_free"]
    (<void**> &tls_calls.set_accept_state)[0] = <void*> <uintptr_t> addresses["SSL_set_accept_state"]
    (<void**> &tls_calls.set_memory)[0] = <void*> <uintptr_t> addresses["SSL_set_bio"]
    (<void**> &tls_calls.shake_hands)[0] = <void*> <uintptr_t> addresses["SSL_do_handshake"]
    (<void**> &tls_calls.read)[0] = <void*> <uintptr_t> addresses["SSL_read"]
    (<void**> &tls_calls.write)[0] = <void*> <uintptr_t> addresses["SSL_write"]
    (<void**> &tls_calls.pending)[0] = <void*> <uintptr_t> addresses["SSL_pending"]
    (<void**> &tls_calls.shut_down)[0] = <void*> <uintptr_t> addresses["SSL_shutdown"]
    (<void**> &tls_calls.error_of)[0] = <void*> <uintptr_t> addresses["SSL_get_error"]
    (<void**> &tls_calls.version_of)[0] = <void*> <uintptr_t> addresses["SSL_get_version"]
    (<void**> &tls_calls.cipher_of)[0] = <void*> <uintptr_t> addresses["SSL_get_current_cipher"]
    (<void**> &tls_calls.name_of_cipher)[0] = <void*> <uintptr_t> addresses["SSL_CIPHER_get_name"]
    (<void**> &tls_calls.was_resumed)[0] = <void*> <uintptr_t> addresses["SSL_session_reused"]
    (<void**> &tls_calls.memory_kind)[0] = <void*> <uintptr_t> addresses["BIO_s_mem"]
    (<void**> &tls_calls.new_memory)[0] = <void*> <uintptr_t> addresses["BIO_new"]
    (<void**> &tls_calls.memory_of)[0] = <void*> <uintptr_t> addresses["BIO_new_mem_buf"]
    (<void**> &tls_calls.set_end)[0] = <void*> <uintptr_t> addresses["BIO_set_mem_eof_return"]
    (<void**> &tls_calls.take)[0] = <void*> <uintptr_t> addresses["BIO_read"]
    (<void**> &tls_calls.content)[0] = <void*> <uintptr_t> addresses["BIO_get_mem_data"]
    (<void**> &tls_calls.free_memory)[0] = <void*> <uintptr_t> addresses["BIO_free"]
    (<void**> &tls_calls.next_error)[0] = <void*> <uintptr_t> addresses["ERR_get_error"]
    (<void**> &tls_calls.clear_errors)[0] = <void*> <uintptr_t> addresses["ERR_clear_error"]
    (<void**> &tls_calls.reason_of)[0] = <void*> <uintptr_t> addresses["ERR_reason_error_string"]
