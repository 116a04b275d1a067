"""What compiled these extensions, and how: for `kbroker --version`.

`COMPILER`: its name and version.  `MODE`: the build of setup.py, `release`, `debug` or `sanitize` (a profile build has
a release's code).  `CHECKED`: whether classes that hold state assert their invariants with each change, which the
debug build does (`check_invariants`).
"""

cdef extern from *:
    """
    #if defined(__clang__)
    #define KB_COMPILER __VERSION__
    #elif defined(__GNUC__)
    #define KB_COMPILER "GCC " __VERSION__
    #else
    #define KB_COMPILER "unknown"
    #endif
    #if defined(__SANITIZE_ADDRESS__)
    #define KB_MODE "sanitize"
    #elif defined(KBROKER_DEBUG)
    #define KB_MODE "debug"
    #else
    #define KB_MODE "release"
    #endif
    """
    const char* KB_COMPILER
    const char* KB_MODE


COMPILER = (<bytes> KB_COMPILER).decode("ascii", "replace").strip()
MODE = (<bytes> KB_MODE).decode("ascii")
CHECKED = MODE != "release"
