"""The two ends of a connection: asked of its transport once, when somebody wants to know."""

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

    cdef tuple _peer(self):
        if self.peer is None and self.transport is not None:
            self.peer = self.transport.get_extra_info("peername")
        return self.peer or UNKNOWN

    cdef tuple _local(self):
        if self.local is None and self.transport is not None:
            self.local = self.transport.get_extra_info("sockname")
        return self.local or UNKNOWN
