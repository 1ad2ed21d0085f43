#include "data/data_feature.h"

#include "../tests/test.h"
#include "base/mem.h"
#include "base/rand.h"

static struct err err;

/* The modulus by multiplication is the modulus, at the edges and anywhere. */
TEST(modulus_by_multiplication_is_exact)
{
    const uint64_t edges[] = {1,
                              2,
                              3,
                              7,
                              10,
                              100,
                              10000,
                              1ull << 31,
                              (1ull << 32) - 1,
                              1ull << 32,
                              1000000007,
                              (1ull << 38) - 1,
                              1ull << 63,
                              UINT64_MAX - 1,
                              UINT64_MAX};
    const size_t count = sizeof edges / sizeof *edges;
    for (size_t i = 0; i < count; i++) {
        const struct data_mod mod = data_mod_make(edges[i]);
        for (size_t j = 0; j < count; j++) {
            for (uint64_t around = 0; around < 3; around++) {
                const uint64_t x = edges[j] - 1 + around;
                CHECK(data_mod_of(mod, x) == x % edges[i]);
            }
        }
        for (uint64_t j = 0; j < 2000; j++) {
            const uint64_t x = rand_u64(1, RAND_TEST, i, j);
            CHECK(data_mod_of(mod, x) == x % edges[i]);
            const struct data_mod any = data_mod_make(x | 1);
            CHECK(data_mod_of(any, ~x * 3) == ~x * 3 % (x | 1));
        }
    }
}

static char **words_of(const char *const *texts, uint32_t count)
{
    char **words = mem_alloc_array(MEM_DATA, count, sizeof *words);
    for (uint32_t i = 0; i < count; i++) words[i] = mem_strdup(MEM_DATA, texts[i]);
    return words;
}

TEST(vocabulary_finds_its_words_and_no_others)
{
    static const char *const texts[] = {"a", "bb", "", "ccc", "a longer word than sixteen bytes"};
    struct data_vocabulary vocabulary;
    CHECK_OK(data_vocabulary_init(&vocabulary, words_of(texts, 5), 5, &err));
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_INT(data_vocabulary_find(&vocabulary, texts[i], strlen(texts[i])), i);
    }
    CHECK_INT(data_vocabulary_find(&vocabulary, "b", 1), -1);
    CHECK_INT(data_vocabulary_find(&vocabulary, "bbb", 3), -1);
    data_vocabulary_fini(&vocabulary);
}

TEST(vocabulary_with_a_word_twice_is_refused)
{
    static const char *const texts[] = {"a", "b", "a"};
    struct data_vocabulary vocabulary;
    char **words = words_of(texts, 3);
    CHECK_INT(data_vocabulary_init(&vocabulary, words, 3, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "\"a\" stands twice");
    for (int i = 0; i < 3; i++) mem_free(words[i]);
    mem_free(words);
}
