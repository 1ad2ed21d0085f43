#include "cli/args.h"

#include "../tests/test.h"

struct words {
    const char *set;
    bool json;
    const char *out;
    uint64_t rows;
    struct args_list list;
};

static int parse(struct words *words, const char *const *argv, int argc, const char **positionals,
                 size_t *count, struct err *err)
{
    const struct args_flag flags[] = {
        {"json", ARGS_BOOL, &words->json, NULL, "as JSON"},
        {"out", ARGS_STRING, &words->out, "DIR", "where to"},
        {"rows", ARGS_U64, &words->rows, "N", "how many"},
        {"set", ARGS_LIST, &words->list, "A=B", "a setting"},
    };
    const struct args_command command = {
        .name = "make",
        .usage = "JOB [flags]",
        .summary = "Makes.",
        .flags = flags,
        .flags_count = 4,
        .positionals_min = 1,
        .positionals_max = 2,
    };
    bool help = false;
    return args_parse(&command, argc, (char **)(uintptr_t)argv, positionals, count, &help, err);
}

/* Both spellings of a flag are read, repeated ones add up, and words keep their order. */
TEST(reads_flags_and_words)
{
    struct words words = {0};
    struct err err = {0};
    const char *positionals[2];
    size_t count = 0;
    const char *argv[] = {"a", "--out=x", "--rows", "12", "--set", "a=1", "--json", "--set=b=2", "b"};
    CHECK_OK(parse(&words, argv, 9, positionals, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(positionals[0], "a");
    CHECK_STR(positionals[1], "b");
    CHECK_STR(words.out, "x");
    CHECK_INT(words.rows, 12);
    CHECK(words.json);
    CHECK_INT(words.list.count, 2);
    CHECK_STR(words.list.items[1], "b=2");
}

/* After -- everything is a word. */
TEST(two_dashes_end_the_flags)
{
    struct words words = {0};
    struct err err = {0};
    const char *positionals[2];
    size_t count = 0;
    const char *argv[] = {"--", "--json"};
    CHECK_OK(parse(&words, argv, 2, positionals, &count, &err));
    CHECK_STR(positionals[0], "--json");
    CHECK(!words.json);
}

/* Every mistake is named, with what to do. */
TEST(mistakes_are_named)
{
    static const struct {
        const char *argv[4];
        int argc;
        const char *want;
    } cases[] = {
        {{"job", "--jsn"}, 2, "did you mean --json"},
        {{"job", "--zzzzzz"}, 2, "unknown flag --zzzzzz"},
        {{"job", "-j"}, 2, "flags are long"},
        {{"job", "--rows", "many"}, 3, "found \"many\"; a whole number is wanted"},
        {{"job", "--rows=-1"}, 2, "a whole number is wanted"},
        {{"job", "--rows=99999999999999999999"}, 2, "a whole number is wanted"},
        {{"job", "--out"}, 2, "--out wants a value"},
        {{"job", "--json=1"}, 2, "takes no value"},
        {{"a", "b", "c"}, 3, "one word too many"},
        {{"--json"}, 1, "something is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct words words = {0};
        struct err err = {0};
        const char *positionals[2];
        size_t count = 0;
        CHECK_INT(parse(&words, cases[i].argv, cases[i].argc, positionals, &count, &err),
                  SHOAL_EINVAL);
        CHECK_HAS(err.text, cases[i].want);
    }
}
