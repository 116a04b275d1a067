"""Time for C, and the one place where a simulation puts its own in front of the system's.

While `set_virtual` gives a time, `now_ns` and `wall_ms` return only that time: C code then measures the same in each
run of a seed.  It costs a comparison.
"""


def set_virtual(ns: int, look_ns: int = 0, wall_from_ms: int = 0) -> None:
    """Let it be `ns` from now on; 0: the system's time.  Each look at the clock moves it on by `look_ns`.

    The wall's clock shows `wall_from_ms` and as many milliseconds as `ns` has.
    """
    virtual.ns = ns
    virtual.look_ns = look_ns
    virtual.wall_from_ms = wall_from_ms


def move_virtual(ns: int) -> None:
    """Go on to `ns`, if it is not that late yet."""
    if <uint64_t> ns > virtual.ns:
        virtual.ns = ns


def monotonic_ns() -> int:
    """What C sees now."""
    return now_ns()


def virtual_ns() -> int:
    """The virtual time, without a look at it; 0 while there is none."""
    return virtual.ns


def virtual_wall_ms() -> int:
    """What the wall's clock shows in C."""
    return wall_ms()
