"""A range of an open file that stands for bytes on their way to a socket.

A region never reads: the connection hands it to sendfile.  `owner` keeps the descriptor from being closed while the
region lives.
"""


cdef class FileRegion:
    """`size` bytes of descriptor `fd` from `position` on; `owner` is any object whose life keeps `fd` open."""

    def __init__(self, int fd, int64_t position, int64_t size, object owner=None):
        if fd < 0 or position < 0 or size < 0:
            raise ValueError(f"a file region needs fd, position and size >= 0, not {fd}, {position}, {size}")
        self.fd = fd
        self.position = position
        self.size = size
        self.owner = owner

    def __len__(self):
        return self.size

    def __repr__(self):
        return f"FileRegion(fd={self.fd}, position={self.position}, size={self.size})"
