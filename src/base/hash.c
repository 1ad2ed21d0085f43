#include "base/hash.h"

#include <isa-l/crc.h>
#include <limits.h>

/* FarmHash (Pike, 2014), the `farmhashna` variant, which is what Fingerprint64 is for good. */

static uint64_t shift_mix(uint64_t value)
{
    return value ^ (value >> 47);
}

static uint64_t hash_17_to_32(const uint8_t *s, size_t count)
{
    const uint64_t mul = HASH_K2 + 2 * count;
    const uint64_t a = hash_load64(s) * HASH_K1;
    const uint64_t b = hash_load64(s + 8);
    const uint64_t c = hash_load64(s + count - 8) * mul;
    const uint64_t d = hash_load64(s + count - 16) * HASH_K2;
    return hash_pair(hash_rotate(a + b, 43) + hash_rotate(c, 30) + d,
                     a + hash_rotate(b + HASH_K2, 18) + c, mul);
}

static uint64_t hash_33_to_64(const uint8_t *s, size_t count)
{
    const uint64_t mul = HASH_K2 + 2 * count;
    const uint64_t a = hash_load64(s) * HASH_K2;
    const uint64_t b = hash_load64(s + 8);
    const uint64_t c = hash_load64(s + count - 8) * mul;
    const uint64_t d = hash_load64(s + count - 16) * HASH_K2;
    const uint64_t y = hash_rotate(a + b, 43) + hash_rotate(c, 30) + d;
    const uint64_t z = hash_pair(y, a + hash_rotate(b + HASH_K2, 18) + c, mul);
    const uint64_t e = hash_load64(s + 16) * mul;
    const uint64_t f = hash_load64(s + 24);
    const uint64_t g = (y + hash_load64(s + count - 32)) * mul;
    const uint64_t h = (z + hash_load64(s + count - 24)) * mul;
    return hash_pair(hash_rotate(e + f, 43) + hash_rotate(g, 30) + h,
                     e + hash_rotate(f + a, 18) + g, mul);
}

/* The state of long strings: 56 bytes, fed 64 at a time. */
struct farm {
    uint64_t x, y, z;
    uint64_t v[2], w[2];
};

/* 32 bytes and two seeds into two words. */
static void weak_hash_32(const uint8_t *s, uint64_t a, uint64_t b, uint64_t out[2])
{
    const uint64_t last = hash_load64(s + 24);
    a += hash_load64(s);
    b = hash_rotate(b + a + last, 21);
    const uint64_t c = a;
    a += hash_load64(s + 8) + hash_load64(s + 16);
    b += hash_rotate(a, 44);
    out[0] = a + last;
    out[1] = b + c;
}

/* One block of 64 bytes. The final block has its own multiplier and weighs two terms by 9. */
static void farm_block(struct farm *h, const uint8_t *s, uint64_t mul, uint64_t weight)
{
    h->x = hash_rotate(h->x + h->y + h->v[0] + hash_load64(s + 8), 37) * mul;
    h->y = hash_rotate(h->y + h->v[1] + hash_load64(s + 48), 42) * mul;
    h->x ^= h->w[1] * weight;
    h->y += h->v[0] * weight + hash_load64(s + 40);
    h->z = hash_rotate(h->z + h->w[0], 33) * mul;
    weak_hash_32(s, h->v[1] * mul, h->x + h->w[0], h->v);
    weak_hash_32(s + 32, h->z + h->w[1], h->y + hash_load64(s + 16), h->w);
    const uint64_t swap = h->z;
    h->z = h->x;
    h->x = swap;
}

static uint64_t hash_over_64(const uint8_t *s, size_t count)
{
    const uint64_t seed = 81;
    struct farm h = {.x = seed * HASH_K2 + hash_load64(s), .y = seed * HASH_K1 + 113};
    h.z = shift_mix(h.y * HASH_K2 + 113) * HASH_K2;
    /* Whole blocks leave 1 to 64 bytes; the last block is the last 64 bytes, overlapping. */
    const uint8_t *end = s + (count - 1) / 64 * 64;
    const uint8_t *last = s + count - 64;
    for (; s != end; s += 64) farm_block(&h, s, HASH_K1, 1);
    const uint64_t mul = HASH_K1 + ((h.z & 0xff) << 1);
    h.w[0] += (count - 1) & 63;
    h.v[0] += h.w[0];
    h.w[0] += h.v[0];
    farm_block(&h, last, mul, 9);
    return hash_pair(hash_pair(h.v[0], h.w[0], mul) + shift_mix(h.y) * HASH_K0 + h.z,
                     hash_pair(h.v[1], h.w[1], mul) + h.x, mul);
}

uint64_t hash_fingerprint64_long(const void *bytes, size_t count)
{
    if (count <= 16) return hash_fingerprint64(bytes, count);
    if (count <= 32) return hash_17_to_32(bytes, count);
    if (count <= 64) return hash_33_to_64(bytes, count);
    return hash_over_64(bytes, count);
}

uint64_t hash_unmix64(uint64_t x)
{
    const uint64_t inverse = 0xcfee444d8b59a89bu; /* of hash_mix64's multiplier, modulo 2^64 */
    x ^= x >> 32;
    x *= inverse;
    x ^= x >> 32;
    x *= inverse;
    x ^= x >> 32;
    return x;
}

/* The processor's own CRC32C instruction, 8 bytes at a time: ISA-L's set-up costs more than a short
 * text. On the register itself, as ISA-L. */
__attribute__((target("sse4.2"))) static uint32_t crc32c_short(uint32_t state, const uint8_t *s,
                                                               size_t count)
{
    uint64_t wide = state;
    for (; count >= 8; s += 8, count -= 8) wide = __builtin_ia32_crc32di(wide, hash_load64(s));
    state = (uint32_t)wide;
    for (; count > 0; s++, count--) state = __builtin_ia32_crc32qi(state, *s);
    return state;
}

#define CRC_SHORT_BYTES 64

uint32_t hash_crc32c(uint32_t crc, const void *bytes, size_t count)
{
    /* The published CRC32C inverts the register before and after. */
    const uint8_t *s = bytes;
    uint32_t state = ~crc;
    if (count < CRC_SHORT_BYTES && __builtin_cpu_supports("sse4.2")) {
        return ~crc32c_short(state, s, count);
    }
    while (count > 0) {
        const int piece = count < (1u << 30) ? (int)count : 1 << 30;
        state = crc32_iscsi((unsigned char *)(uintptr_t)s, piece, state);
        /* ISA-L's AVX-512 code leaves the upper halves of the vector registers dirty, and every SSE
         * instruction after that waits for them: input took 0.55 us an example, with this 0.39. */
        if (__builtin_cpu_supports("avx")) __asm__ volatile("vzeroupper");
        s += piece;
        count -= (size_t)piece;
    }
    return ~state;
}
