"""The C libraries of LZ4 and zstd, opened at run time.

They are those that the packages `lz4` and `zstandard` bring, or the system's; `load` takes their paths.  The names
looked up have been stable for years (LZ4F_VERSION 100, zstd 1.4 and later), so nothing has to be there when this is
compiled.
"""

cdef extern from "<dlfcn.h>" nogil:
    void* dlopen(const char* path, int flags)
    void* dlsym(void* handle, const char* name)
    int RTLD_NOW
    int RTLD_LOCAL


cdef enum:
    ZSTD_LEAST_VERSION = 10400

# In the order of the fields above.
cdef tuple LZ4_NAMES = (
    b"LZ4F_createDecompressionContext", b"LZ4F_freeDecompressionContext", b"LZ4F_resetDecompressionContext",
    b"LZ4F_decompress", b"LZ4F_isError", b"LZ4F_compressFrameBound", b"LZ4F_compressFrame", b"LZ4F_getVersion",
)
cdef tuple ZSTD_NAMES = (
    b"ZSTD_createDCtx", b"ZSTD_freeDCtx", b"ZSTD_DCtx_reset", b"ZSTD_DCtx_setParameter", b"ZSTD_decompressBegin",
    b"ZSTD_nextSrcSizeToDecompress", b"ZSTD_decompressContinue", b"ZSTD_decompressStream", b"ZSTD_isError",
    b"ZSTD_createCCtx", b"ZSTD_freeCCtx", b"ZSTD_compressCCtx", b"ZSTD_compressBound", b"ZSTD_versionNumber",
)

cdef bint has_lz4 = False
cdef bint has_zstd = False

cdef bint bind(bytes path, tuple names, void** table) except -1:
    """Fills a table of functions; False when the file or one of the names is not there."""
    cdef void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)
    cdef Py_ssize_t at
    if handle == NULL:
        return False
    for at in range(len(names)):
        table[at] = dlsym(handle, <bytes> names[at])
        if table[at] == NULL:
            return False
    return True


def load(lz4_paths, zstd_paths):
    """Opens the first library of each kind that will do (paths as bytes): the codecs that are served from now on."""
    global has_lz4, has_zstd
    cdef bytes path
    for path in lz4_paths:
        if not has_lz4 and bind(path, LZ4_NAMES, <void**> &lz4):
            has_lz4 = lz4.version() == LZ4F_VERSION
    for path in zstd_paths:
        if not has_zstd and bind(path, ZSTD_NAMES, <void**> &zstd):
            has_zstd = zstd.version() >= ZSTD_LEAST_VERSION
    return loaded()


def loaded():
    """The codecs (numbers as in a batch's attributes) that are read here."""
    return frozenset([codec for codec in (CODEC_LZ4, CODEC_ZSTD) if serves(codec)])


def forget():
    """As if no library had been found: for tests of the way through Python."""
    global has_lz4, has_zstd
    has_lz4 = has_zstd = False


cdef bint serves(int codec) noexcept nogil:
    return has_lz4 if codec == CODEC_LZ4 else (codec == CODEC_ZSTD and has_zstd)
