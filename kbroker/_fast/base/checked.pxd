# Whether invariants are asserted: `if CHECKED: assert ...` is code in a debug build alone, and none in a release.
# `build_facts.CHECKED` says the same to Python.
cdef extern from *:
    """
    #ifdef KBROKER_DEBUG
    #define KB_CHECKED 1
    #else
    #define KB_CHECKED 0
    #endif
    """
    const bint CHECKED "KB_CHECKED"
