/* Latencies in nanoseconds, in buckets that double, each split into 64: a percentile is right to 1.6 %. */
#ifndef KB_BENCH_HISTOGRAM_H
#define KB_BENCH_HISTOGRAM_H

#include <stdint.h>
#include <string.h>

#define SUB_BITS 6
#define SUB (1 << SUB_BITS)
#define BUCKETS ((64 - SUB_BITS) * SUB + SUB)

typedef struct {
    uint64_t count, max;
    uint64_t buckets[BUCKETS];
} histogram;

static inline void histogram_reset(histogram *h) { memset(h, 0, sizeof *h); }

static inline void histogram_add(histogram *h, uint64_t v) {
    unsigned index;
    if (v < SUB) {
        index = (unsigned)v;
    } else {
        unsigned shift = 63u - (unsigned)__builtin_clzll(v) - SUB_BITS;
        index = (shift + 1) * SUB + (unsigned)((v >> shift) & (SUB - 1));
    }
    h->buckets[index]++;
    h->count++;
    if (v > h->max) h->max = v;
}

/* The upper edge of the bucket that holds the quantile. */
static inline uint64_t histogram_quantile(const histogram *h, double q) {
    uint64_t rank = (uint64_t)(q * (double)h->count), seen = 0;
    for (unsigned index = 0; index < BUCKETS; index++) {
        seen += h->buckets[index];
        if (seen > rank) {
            if (index < SUB) return index;
            unsigned shift = index / SUB - 1;
            return (((uint64_t)(SUB + index % SUB) + 1) << shift) - 1;
        }
    }
    return h->max;
}
#endif
