/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): one update function behind a run-time choice.
 *
 * x86-64 with SSE 4.2 and ARMv8 with the CRC extension run three independent chains, because the instruction takes
 * three cycles and starts one per cycle; the chains are joined by tables that advance a CRC over a block of zeros.
 * Everything else runs slicing-by-8.
 */
#ifndef KBROKER_CRC32C_IMPL_H
#define KBROKER_CRC32C_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu_features.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#define KB_CRC_LONG 2048
#define KB_CRC_SHORT 256

static uint32_t kb_crc_slices[8][256];
static uint32_t kb_crc_skip_long[4][256];
static uint32_t kb_crc_skip_short[4][256];

typedef uint32_t (*kb_crc_function)(uint32_t crc, const uint8_t *data, size_t size);

static inline uint64_t kb_crc_load(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

/* The state is the inverted CRC in all functions below; kb_crc32c does the inversions. */
static uint32_t kb_crc_portable(uint32_t crc, const uint8_t *data, size_t size) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (size >= 8) {
        uint64_t word = kb_crc_load(data) ^ crc;
        crc = kb_crc_slices[7][word & 0xff] ^ kb_crc_slices[6][(word >> 8) & 0xff]
            ^ kb_crc_slices[5][(word >> 16) & 0xff] ^ kb_crc_slices[4][(word >> 24) & 0xff]
            ^ kb_crc_slices[3][(word >> 32) & 0xff] ^ kb_crc_slices[2][(word >> 40) & 0xff]
            ^ kb_crc_slices[1][(word >> 48) & 0xff] ^ kb_crc_slices[0][word >> 56];
        data += 8;
        size -= 8;
    }
#endif
    while (size--)
        crc = (crc >> 8) ^ kb_crc_slices[0][(crc ^ *data++) & 0xff];
    return crc;
}

static inline uint32_t kb_crc_skip(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^ table[3][crc >> 24];
}

#if defined(__x86_64__)
#ifdef __clang__
#define KB_CRC_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define KB_CRC_TARGET __attribute__((target("sse4.2")))
#endif
#define KB_CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define KB_CRC_BYTE(crc, byte) _mm_crc32_u8((crc), (byte))
#elif defined(__aarch64__) && defined(__clang__)
#define KB_CRC_TARGET __attribute__((target("crc")))
#define KB_CRC_WORD(crc, word) __builtin_arm_crc32cd((crc), (word))
#define KB_CRC_BYTE(crc, byte) __builtin_arm_crc32cb((crc), (byte))
#elif defined(__aarch64__)
#define KB_CRC_TARGET __attribute__((target("+crc")))
#define KB_CRC_WORD(crc, word) __builtin_aarch64_crc32cx((crc), (word))
#define KB_CRC_BYTE(crc, byte) __builtin_aarch64_crc32cb((crc), (byte))
#endif

#ifdef KB_CRC_TARGET
KB_CRC_TARGET static inline uint32_t
kb_crc_blocks(uint32_t crc, const uint8_t **data, size_t *size, size_t block, uint32_t table[4][256]) {
    const uint8_t *at = *data;
    while (*size >= 3 * block) {
        uint32_t second = 0, third = 0;
        const uint8_t *stop = at + block;
        do {
            crc = KB_CRC_WORD(crc, kb_crc_load(at));
            second = KB_CRC_WORD(second, kb_crc_load(at + block));
            third = KB_CRC_WORD(third, kb_crc_load(at + 2 * block));
            at += 8;
        } while (at < stop);
        crc = kb_crc_skip(table, crc) ^ second;
        crc = kb_crc_skip(table, crc) ^ third;
        at += 2 * block;
        *size -= 3 * block;
    }
    *data = at;
    return crc;
}

KB_CRC_TARGET static uint32_t kb_crc_hardware(uint32_t crc, const uint8_t *data, size_t size) {
    if (size >= 3 * KB_CRC_SHORT) {
        crc = kb_crc_blocks(crc, &data, &size, KB_CRC_LONG, kb_crc_skip_long);
        crc = kb_crc_blocks(crc, &data, &size, KB_CRC_SHORT, kb_crc_skip_short);
    }
    while (size >= 8) {
        crc = KB_CRC_WORD(crc, kb_crc_load(data));
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = KB_CRC_BYTE(crc, *data++);
    return crc;
}
#endif

static kb_crc_function kb_crc_chosen = kb_crc_portable;

/* A table that advances a CRC over `length` zero bytes: the map is linear, so 32 single bits define it. */
static void kb_crc_fill_skip(uint32_t table[4][256], size_t length) {
    uint32_t bits[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = (uint32_t)1 << bit;
        for (size_t at = 0; at < length; at++)
            crc = (crc >> 8) ^ kb_crc_slices[0][crc & 0xff];
        bits[bit] = crc;
    }
    for (int lane = 0; lane < 4; lane++) {
        for (int value = 0; value < 256; value++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value & (1 << bit))
                    crc ^= bits[8 * lane + bit];
            table[lane][value] = crc;
        }
    }
}

/* Fills the tables and chooses; called once, under the GIL, when the module is imported. */
static int kb_crc_start(void) {
    for (int value = 0; value < 256; value++) {
        uint32_t crc = (uint32_t)value;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1)));
        kb_crc_slices[0][value] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int value = 0; value < 256; value++) {
            uint32_t before = kb_crc_slices[slice - 1][value];
            kb_crc_slices[slice][value] = (before >> 8) ^ kb_crc_slices[0][before & 0xff];
        }
    kb_crc_fill_skip(kb_crc_skip_long, KB_CRC_LONG);
    kb_crc_fill_skip(kb_crc_skip_short, KB_CRC_SHORT);
#if defined(__x86_64__)
    if (kb_has_sse42())
        kb_crc_chosen = kb_crc_hardware;
#elif defined(__aarch64__)
    if (getauxval(AT_HWCAP) & HWCAP_CRC32)
        kb_crc_chosen = kb_crc_hardware;
#endif
    return kb_crc_chosen != kb_crc_portable;
}

static inline uint32_t kb_crc32c(uint32_t crc, const uint8_t *data, size_t size) {
    return ~kb_crc_chosen(~crc, data, size);
}

static inline uint32_t kb_crc32c_portable(uint32_t crc, const uint8_t *data, size_t size) {
    return ~kb_crc_portable(~crc, data, size);
}

#endif
