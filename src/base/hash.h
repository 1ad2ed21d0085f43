/* hash holds the hashes that are part of what we promise: FarmHash's Fingerprint64 (bit-equal to
 * tf.strings.to_hash_bucket_fast), TensorFlow's FingerprintCat64 for crossed columns, a bijective
 * 64-bit mix for tables, CRC32C for files, and xxhash-free 64-bit checksums of whole files. */
#ifndef SHOAL_BASE_HASH_H
#define SHOAL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_fingerprint64(const void *bytes, size_t count);

/* TensorFlow's FingerprintCat64(fp1, fp2), used by crossed columns. */
uint64_t hash_fingerprint_cat64(uint64_t first, uint64_t second);

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
