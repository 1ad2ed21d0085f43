/* hash holds the hashes that are part of what we promise: FarmHash's Fingerprint64 (bit-equal to
 * tf.strings.to_hash_bucket_fast), TensorFlow's FingerprintCat64 for crossed columns, a bijective
 * 64-bit mix for tables, and CRC32C for records and files. Pure functions, any thread.
 *
 * Fingerprint64 of short strings is the hot path of input (20 ids an example, millions a second),
 * so what is up to 16 bytes is hashed inline; longer ones call hash_fingerprint64_long. */
#ifndef SHOAL_BASE_HASH_H
#define SHOAL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* FarmHash's constants: primes between 2^63 and 2^64. */
#define HASH_K0 0xc3a5c85c97cb3127u
#define HASH_K1 0xb492b66fbe98f273u
#define HASH_K2 0x9ae16a3b2f90404fu

static inline uint64_t hash_load64(const void *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint32_t hash_load32(const void *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint64_t hash_rotate(uint64_t value, unsigned shift)
{
    return (value >> shift) | (value << (64 - shift));
}

/* FarmHash's HashLen16: two words into one, Murmur style. */
static inline uint64_t hash_pair(uint64_t u, uint64_t v, uint64_t mul)
{
    uint64_t a = (u ^ v) * mul;
    a ^= a >> 47;
    uint64_t b = (v ^ a) * mul;
    b ^= b >> 47;
    return b * mul;
}

/* Fingerprint64 of more than 16 bytes. */
uint64_t hash_fingerprint64_long(const void *bytes, size_t count);

/* FarmHash's Fingerprint64, the same on every machine and in every version. */
static inline uint64_t hash_fingerprint64(const void *bytes, size_t count)
{
    const uint8_t *s = bytes;
    const uint64_t mul = HASH_K2 + 2 * (uint64_t)count;
    if (count > 16) return hash_fingerprint64_long(bytes, count);
    if (count >= 8) {
        const uint64_t a = hash_load64(s) + HASH_K2;
        const uint64_t b = hash_load64(s + count - 8);
        return hash_pair(hash_rotate(b, 37) * mul + a, (hash_rotate(a, 25) + b) * mul, mul);
    }
    if (count >= 4) {
        const uint64_t a = hash_load32(s);
        return hash_pair(count + (a << 3), hash_load32(s + count - 4), mul);
    }
    if (count > 0) {
        const uint32_t y = s[0] + ((uint32_t)s[count >> 1] << 8);
        const uint32_t z = (uint32_t)count + ((uint32_t)s[count - 1] << 2);
        const uint64_t mixed = (y * HASH_K2) ^ (z * HASH_K0);
        return (mixed ^ (mixed >> 47)) * HASH_K2;
    }
    return HASH_K2;
}

/* TensorFlow's FingerprintCat64(fp1, fp2): joins a fingerprint to those before it. */
static inline uint64_t hash_fingerprint_cat64(uint64_t first, uint64_t second)
{
    const uint64_t mul = 0xc6a4a7935bd1e995u;
    uint64_t b = second * mul;
    b ^= b >> 47;
    uint64_t result = ((first ^ mul) ^ (b * mul)) * mul;
    result = (result ^ (result >> 47)) * mul;
    return result ^ (result >> 47);
}

/* What crossed_column starts from: bucket = cat(cat(HASH_CROSS_KEY, f1), f2) ... % buckets, where
 * f of a string is its Fingerprint64 and f of an integer is the integer itself. */
#define HASH_CROSS_KEY 0xDECAFCAFFEu

/* Bijective: hash_unmix64(hash_mix64(x)) == x, for every x. */
static inline uint64_t hash_mix64(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return x;
}
uint64_t hash_unmix64(uint64_t x);

/* CRC32C (Castagnoli), continuing from `crc` (0 at the start). */
uint32_t hash_crc32c(uint32_t crc, const void *bytes, size_t count);

/* TFRecord's masking: rotate right by 15 and add a constant. */
static inline uint32_t hash_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

#endif
