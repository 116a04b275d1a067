/* What the processor of this machine has, by CPUID itself: __builtin_cpu_supports is answered by the compiler's own library,
 * and zig's, which builds wheels, says no to everything. */

#ifndef KB_CPU_FEATURES_H
#define KB_CPU_FEATURES_H

#if defined(__x86_64__)
#include <cpuid.h>

static inline int kb_has_sse42(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) != 0;
}

/* The system must keep the wide registers, too: bits 1 and 2 of XCR0. */
static inline int kb_has_avx2(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0 || (c & bit_AVX) == 0)
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6)
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2) != 0;
}
#endif

#endif
