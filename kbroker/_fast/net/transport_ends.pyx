"""The two ends of a connection, asked of its transport once, when they are needed; and the client's own name."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

cdef tuple UNKNOWN = ("unknown", 0)


cdef class TransportEnds:
    @property
    def peer_host(self) -> str:
        return self._peer()[0]

    @property
    def peer_port(self) -> int:
        return self._peer()[1]

    @property
    def local_host(self) -> str:
        """The address that the client dialled."""
        return self._local()[0]

    @property
    def local_port(self) -> int:
        return self._local()[1]

    @property
    def socket(self):
        """The transport's own socket, to set options on."""
        return self.transport.get_extra_info("socket")

    cdef tuple _peer(self):
        if self.peer is None and self.transport is not None:
            self.peer = self.transport.get_extra_info("peername")
        return self.peer or UNKNOWN

    cdef tuple _local(self):
        if self.local is None and self.transport is not None:
            self.local = self.transport.get_extra_info("sockname")
        return self.local or UNKNOWN

    cdef str _client_id(self, const char* data, Py_ssize_t size):
        """The client id as text; the last one seen on this connection is kept, as clients repeat it."""
        if (self.client_id_bytes is None or PyBytes_GET_SIZE(self.client_id_bytes) != size
                or memcmp(PyBytes_AS_STRING(self.client_id_bytes), data, size) != 0):
            self.client_id_bytes = PyBytes_FromStringAndSize(data, size)
            self.client_id_text = self.client_id_bytes.decode("utf-8", "replace")
        return self.client_id_text
