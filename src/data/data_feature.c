#include "data/data_feature.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/data_text.h"

int data_vocabulary_init(struct data_vocabulary *vocabulary, char **words, uint32_t count,
                         struct err *err)
{
    ASSERT(count > 0);
    uint32_t slots = 16;
    while (slots < count * 2u) slots *= 2;
    uint32_t *word_bytes = mem_alloc_array(MEM_DATA, count, sizeof *word_bytes);
    uint32_t *table = mem_alloc_array(MEM_DATA, slots, sizeof *table);
    if (word_bytes == NULL || table == NULL) {
        mem_free(word_bytes);
        mem_free(table);
        return err_set(err, SHOAL_ENOMEM, "no memory for a vocabulary of %u words", count);
    }
    *vocabulary = (struct data_vocabulary){
        .words = words, .word_bytes = word_bytes, .slots = table, .slots_mask = slots - 1};
    for (uint32_t i = 0; i < count; i++) {
        const size_t bytes = strlen(words[i]);
        if (data_vocabulary_find(vocabulary, words[i], bytes) >= 0) {
            mem_free(word_bytes);
            mem_free(table);
            *vocabulary = (struct data_vocabulary){0};
            return err_set(err, SHOAL_EINVAL, "the word \"%.64s\" stands twice", words[i]);
        }
        word_bytes[i] = (uint32_t)bytes;
        uint32_t at = (uint32_t)hash_fingerprint64(words[i], bytes) & vocabulary->slots_mask;
        while (table[at] != 0) at = (at + 1) & vocabulary->slots_mask;
        table[at] = i + 1;
        vocabulary->count = i + 1;
    }
    return 0;
}

void data_vocabulary_fini(struct data_vocabulary *vocabulary)
{
    for (uint32_t i = 0; i < vocabulary->count; i++) mem_free(vocabulary->words[i]);
    mem_free(vocabulary->words);
    mem_free(vocabulary->word_bytes);
    mem_free(vocabulary->slots);
    *vocabulary = (struct data_vocabulary){0};
}

int64_t data_vocabulary_find(const struct data_vocabulary *vocabulary, const void *text,
                             size_t bytes)
{
    uint32_t at = (uint32_t)hash_fingerprint64(text, bytes) & vocabulary->slots_mask;
    for (; vocabulary->slots[at] != 0; at = (at + 1) & vocabulary->slots_mask) {
        const uint32_t index = vocabulary->slots[at] - 1;
        if (vocabulary->word_bytes[index] == bytes &&
            memcmp(vocabulary->words[index], text, bytes) == 0) {
            return index;
        }
    }
    return -1;
}

static enum data_key key_of_word(const struct data_feature *feature, const void *text, size_t bytes,
                                 uint64_t *key_out)
{
    const int64_t index = data_vocabulary_find(&feature->vocabulary, text, bytes);
    if (index >= 0) {
        *key_out = (uint64_t)index;
    } else if (feature->buckets.divisor != 0) {
        *key_out = feature->vocabulary.count +
                   data_mod_of(feature->buckets, hash_fingerprint64(text, bytes));
    } else if (feature->has_default) {
        *key_out = feature->default_key;
    } else {
        return DATA_KEY_NONE;
    }
    return DATA_KEY_OK;
}

enum data_key data_feature_key_of_text(const struct data_feature *feature, const void *text,
                                       size_t bytes, uint64_t *key_out)
{
    double number = 0;
    int64_t integer = 0;
    switch (feature->kind) {
    case DATA_HASH:
        *key_out = data_mod_of(feature->buckets, hash_fingerprint64(text, bytes));
        return DATA_KEY_OK;
    case DATA_DYNAMIC: *key_out = hash_fingerprint64(text, bytes); return DATA_KEY_OK;
    case DATA_VOCABULARY: return key_of_word(feature, text, bytes, key_out);
    case DATA_IDENTITY:
        if (!data_text_to_i64(text, bytes, &integer)) return DATA_KEY_TYPE;
        return data_feature_key_of_integer(feature, integer, key_out);
    case DATA_BUCKETIZE:
        if (!data_text_to_f64(text, bytes, &number)) return DATA_KEY_TYPE;
        return data_feature_key_of_number(feature, (float)number, key_out);
    default: ASSERT(false); return DATA_KEY_TYPE;
    }
}

enum data_key data_feature_key_of_integer(const struct data_feature *feature, int64_t integer,
                                          uint64_t *key_out)
{
    char text[24];
    switch (feature->kind) {
    case DATA_DYNAMIC: *key_out = (uint64_t)integer; return DATA_KEY_OK;
    case DATA_IDENTITY:
        if (integer >= 0 && (uint64_t)integer < feature->buckets.divisor) {
            *key_out = (uint64_t)integer;
            return DATA_KEY_OK;
        }
        *key_out = feature->default_key;
        return feature->has_default ? DATA_KEY_OK : DATA_KEY_RANGE;
    case DATA_BUCKETIZE: return data_feature_key_of_number(feature, (float)integer, key_out);
    default: /* Integers are hashed and looked up as their decimal text, as TensorFlow does. */
        return data_feature_key_of_text(feature, text, data_text_of_i64(integer, text), key_out);
    }
}

enum data_key data_feature_key_of_number(const struct data_feature *feature, float number,
                                         uint64_t *key_out)
{
    if (feature->kind != DATA_BUCKETIZE) return DATA_KEY_TYPE;
    uint32_t low = 0; /* the first boundary above the number, by halving */
    uint32_t high = feature->boundaries_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (feature->boundaries[middle] <= number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *key_out = low;
    return DATA_KEY_OK;
}
