/* MD5 (RFC 1321) of the keys that compaction looks up: not for secrets.
 *
 * One lane takes messages of any length.  Sixteen lanes take messages of at most 55 bytes, which fit one block with
 * their padding; the compiler makes two AVX2 registers of each vector where the processor has them (two, because the
 * steps of one wait for each other), else what the target always has.  `words` holds the blocks word by word:
 * words[word][lane].
 */
#ifndef KBROKER_MD5_IMPL_H
#define KBROKER_MD5_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu_features.h"

#define KB_MD5_LANES 16
#define KB_MD5_ONE_BLOCK 55

typedef uint32_t kb_md5_vector __attribute__((vector_size(64)));

/* The value of each byte is its place, so that the code is right on either byte order. */
static inline uint32_t kb_md5_load(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

static inline void kb_md5_store(uint8_t *at, uint32_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    memcpy(at, &word, 4);
}

#define KB_MD5_F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define KB_MD5_G(x, y, z) ((y) ^ ((z) & ((x) ^ (y))))
#define KB_MD5_H(x, y, z) ((x) ^ (y) ^ (z))
#define KB_MD5_I(x, y, z) ((y) ^ ((x) | ~(z)))
#define KB_MD5_STEP(f, a, b, c, d, word, constant, shift) \
    a += KB_MD5_##f(b, c, d) + m[word] + constant##u; \
    a = ((a << shift) | (a >> (32 - shift))) + b;

/* The 64 steps over the block in m[0..15]; a, b, c and d are numbers or vectors. */
#define KB_MD5_ROUNDS \
    KB_MD5_STEP(F, a, b, c, d, 0, 0xd76aa478, 7) \
    KB_MD5_STEP(F, d, a, b, c, 1, 0xe8c7b756, 12) \
    KB_MD5_STEP(F, c, d, a, b, 2, 0x242070db, 17) \
    KB_MD5_STEP(F, b, c, d, a, 3, 0xc1bdceee, 22) \
    KB_MD5_STEP(F, a, b, c, d, 4, 0xf57c0faf, 7) \
    KB_MD5_STEP(F, d, a, b, c, 5, 0x4787c62a, 12) \
    KB_MD5_STEP(F, c, d, a, b, 6, 0xa8304613, 17) \
    KB_MD5_STEP(F, b, c, d, a, 7, 0xfd469501, 22) \
    KB_MD5_STEP(F, a, b, c, d, 8, 0x698098d8, 7) \
    KB_MD5_STEP(F, d, a, b, c, 9, 0x8b44f7af, 12) \
    KB_MD5_STEP(F, c, d, a, b, 10, 0xffff5bb1, 17) \
    KB_MD5_STEP(F, b, c, d, a, 11, 0x895cd7be, 22) \
    KB_MD5_STEP(F, a, b, c, d, 12, 0x6b901122, 7) \
    KB_MD5_STEP(F, d, a, b, c, 13, 0xfd987193, 12) \
    KB_MD5_STEP(F, c, d, a, b, 14, 0xa679438e, 17) \
    KB_MD5_STEP(F, b, c, d, a, 15, 0x49b40821, 22) \
    KB_MD5_STEP(G, a, b, c, d, 1, 0xf61e2562, 5) \
    KB_MD5_STEP(G, d, a, b, c, 6, 0xc040b340, 9) \
    KB_MD5_STEP(G, c, d, a, b, 11, 0x265e5a51, 14) \
    KB_MD5_STEP(G, b, c, d, a, 0, 0xe9b6c7aa, 20) \
    KB_MD5_STEP(G, a, b, c, d, 5, 0xd62f105d, 5) \
    KB_MD5_STEP(G, d, a, b, c, 10, 0x02441453, 9) \
    KB_MD5_STEP(G, c, d, a, b, 15, 0xd8a1e681, 14) \
    KB_MD5_STEP(G, b, c, d, a, 4, 0xe7d3fbc8, 20) \
    KB_MD5_STEP(G, a, b, c, d, 9, 0x21e1cde6, 5) \
    KB_MD5_STEP(G, d, a, b, c, 14, 0xc33707d6, 9) \
    KB_MD5_STEP(G, c, d, a, b, 3, 0xf4d50d87, 14) \
    KB_MD5_STEP(G, b, c, d, a, 8, 0x455a14ed, 20) \
    KB_MD5_STEP(G, a, b, c, d, 13, 0xa9e3e905, 5) \
    KB_MD5_STEP(G, d, a, b, c, 2, 0xfcefa3f8, 9) \
    KB_MD5_STEP(G, c, d, a, b, 7, 0x676f02d9, 14) \
    KB_MD5_STEP(G, b, c, d, a, 12, 0x8d2a4c8a, 20) \
    KB_MD5_STEP(H, a, b, c, d, 5, 0xfffa3942, 4) \
    KB_MD5_STEP(H, d, a, b, c, 8, 0x8771f681, 11) \
    KB_MD5_STEP(H, c, d, a, b, 11, 0x6d9d6122, 16) \
    KB_MD5_STEP(H, b, c, d, a, 14, 0xfde5380c, 23) \
    KB_MD5_STEP(H, a, b, c, d, 1, 0xa4beea44, 4) \
    KB_MD5_STEP(H, d, a, b, c, 4, 0x4bdecfa9, 11) \
    KB_MD5_STEP(H, c, d, a, b, 7, 0xf6bb4b60, 16) \
    KB_MD5_STEP(H, b, c, d, a, 10, 0xbebfbc70, 23) \
    KB_MD5_STEP(H, a, b, c, d, 13, 0x289b7ec6, 4) \
    KB_MD5_STEP(H, d, a, b, c, 0, 0xeaa127fa, 11) \
    KB_MD5_STEP(H, c, d, a, b, 3, 0xd4ef3085, 16) \
    KB_MD5_STEP(H, b, c, d, a, 6, 0x04881d05, 23) \
    KB_MD5_STEP(H, a, b, c, d, 9, 0xd9d4d039, 4) \
    KB_MD5_STEP(H, d, a, b, c, 12, 0xe6db99e5, 11) \
    KB_MD5_STEP(H, c, d, a, b, 15, 0x1fa27cf8, 16) \
    KB_MD5_STEP(H, b, c, d, a, 2, 0xc4ac5665, 23) \
    KB_MD5_STEP(I, a, b, c, d, 0, 0xf4292244, 6) \
    KB_MD5_STEP(I, d, a, b, c, 7, 0x432aff97, 10) \
    KB_MD5_STEP(I, c, d, a, b, 14, 0xab9423a7, 15) \
    KB_MD5_STEP(I, b, c, d, a, 5, 0xfc93a039, 21) \
    KB_MD5_STEP(I, a, b, c, d, 12, 0x655b59c3, 6) \
    KB_MD5_STEP(I, d, a, b, c, 3, 0x8f0ccc92, 10) \
    KB_MD5_STEP(I, c, d, a, b, 10, 0xffeff47d, 15) \
    KB_MD5_STEP(I, b, c, d, a, 1, 0x85845dd1, 21) \
    KB_MD5_STEP(I, a, b, c, d, 8, 0x6fa87e4f, 6) \
    KB_MD5_STEP(I, d, a, b, c, 15, 0xfe2ce6e0, 10) \
    KB_MD5_STEP(I, c, d, a, b, 6, 0xa3014314, 15) \
    KB_MD5_STEP(I, b, c, d, a, 13, 0x4e0811a1, 21) \
    KB_MD5_STEP(I, a, b, c, d, 4, 0xf7537e82, 6) \
    KB_MD5_STEP(I, d, a, b, c, 11, 0xbd3af235, 10) \
    KB_MD5_STEP(I, c, d, a, b, 2, 0x2ad7d2bb, 15) \
    KB_MD5_STEP(I, b, c, d, a, 9, 0xeb86d391, 21)

static const uint32_t kb_md5_start[4] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u};

static void kb_md5_block(uint32_t state[4], const uint8_t *block) {
    uint32_t m[16];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < 16; i++) {
        m[i] = kb_md5_load(block + 4 * i);
    }
    KB_MD5_ROUNDS
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

static void kb_md5_one(const uint8_t *data, size_t size, uint8_t *digest) {
    uint32_t state[4];
    uint8_t tail[128];
    size_t left = size, end;
    uint64_t bits = (uint64_t)size << 3;
    memcpy(state, kb_md5_start, sizeof state);
    for (; left >= 64; left -= 64, data += 64) {
        kb_md5_block(state, data);
    }
    memset(tail, 0, sizeof tail);
    if (left) {
        memcpy(tail, data, left);
    }
    tail[left] = 0x80;
    end = left + 9 <= 64 ? 64 : 128;
    for (int i = 0; i < 8; i++) {
        tail[end - 8 + i] = (uint8_t)(bits >> (8 * i));
    }
    kb_md5_block(state, tail);
    if (end == 128) {
        kb_md5_block(state, tail + 64);
    }
    for (int i = 0; i < 4; i++) {
        kb_md5_store(digest + 4 * i, state[i]);
    }
}

/* Puts a message of at most KB_MD5_ONE_BLOCK bytes, padded, into one lane.  `used` is how many words of the lane the
 * message before it took, and is set to how many this one takes: the words after them are zero already. */
static inline void kb_md5_lane(
    uint32_t words[16][KB_MD5_LANES], int lane, const uint8_t *data, size_t size, int *used
) {
    int full = (int)(size >> 2);
    uint32_t last = 0x80;
    for (int i = 0; i < full; i++) {
        words[i][lane] = kb_md5_load(data + 4 * i);
    }
    for (size_t i = size; i > (size_t)full * 4; i--) {
        last = (last << 8) | data[i - 1];
    }
    words[full][lane] = last;
    for (int i = full + 1; i < *used; i++) {
        words[i][lane] = 0;
    }
    *used = full + 1;
    words[14][lane] = (uint32_t)(size << 3);
}

#define KB_MD5_LANES_BODY \
    kb_md5_vector m[16], a, b, c, d; \
    uint32_t out[4][KB_MD5_LANES]; \
    memcpy(m, words, sizeof m); \
    a = kb_md5_start[0] - (kb_md5_vector){0}; \
    b = kb_md5_start[1] - (kb_md5_vector){0}; \
    c = kb_md5_start[2] - (kb_md5_vector){0}; \
    d = kb_md5_start[3] - (kb_md5_vector){0}; \
    KB_MD5_ROUNDS \
    a += kb_md5_start[0]; \
    b += kb_md5_start[1]; \
    c += kb_md5_start[2]; \
    d += kb_md5_start[3]; \
    memcpy(out[0], &a, sizeof a); \
    memcpy(out[1], &b, sizeof b); \
    memcpy(out[2], &c, sizeof c); \
    memcpy(out[3], &d, sizeof d); \
    for (int lane = 0; lane < KB_MD5_LANES; lane++) { \
        for (int i = 0; i < 4; i++) { \
            kb_md5_store(digests[lane] + 4 * i, out[i][lane]); \
        } \
    }

static void kb_md5_lanes_baseline(uint32_t words[16][KB_MD5_LANES], uint8_t digests[KB_MD5_LANES][16]) {
    KB_MD5_LANES_BODY
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void kb_md5_lanes_avx2(
    uint32_t words[16][KB_MD5_LANES], uint8_t digests[KB_MD5_LANES][16]
) {
    KB_MD5_LANES_BODY
}
#endif

typedef void (*kb_md5_lanes_function)(uint32_t words[16][KB_MD5_LANES], uint8_t digests[KB_MD5_LANES][16]);

static kb_md5_lanes_function kb_md5_lanes = kb_md5_lanes_baseline;

/* Chooses the function for this processor; says whether it is the one for AVX2. */
static int kb_md5_choose(void) {
#if defined(__x86_64__)
    if (kb_has_avx2()) {
        kb_md5_lanes = kb_md5_lanes_avx2;
        return 1;
    }
#endif
    return 0;
}

#endif
