#include "base/mem.h"
#include "data/data_test_help.h"
#include "data/data_tools.h"

static uint64_t print_of(const char *pattern)
{
    struct io_list list;
    uint64_t print = 0;
    CHECK_OK(io_glob(pattern, &list, &err));
    for (size_t i = 0; i < list.count; i++) {
        char *bytes = NULL;
        size_t count = 0;
        CHECK_OK(io_read_whole(list.paths[i], 1 << 28, &bytes, &count, &err));
        print = hash_fingerprint_cat64(print, hash_fingerprint64(bytes, count));
        mem_free(bytes);
    }
    io_list_fini(&list);
    return print;
}

/* Every kind and packing: the same bytes on any team, other bytes with another seed. */
TEST(bytes_depend_on_the_options_alone)
{
    for (int kind = 0; kind < 2; kind++) {
        for (int compress = 0; compress < 3; compress++) {
            struct data_gen_opts opts = {.kind = (enum data_gen_kind)kind,
                                         .compress = (enum data_compress)compress,
                                         .out = "one",
                                         .rows = 5000,
                                         .eval_rows = 500,
                                         .files = 3,
                                         .seed = 5};
            struct data_gen_result one, three;
            struct team *team = NULL;
            CHECK_OK(data_gen(&opts, NULL, &one, &err));
            CHECK_OK(team_create(3, &team, &err));
            opts.out = "three";
            CHECK_OK(data_gen(&opts, team, &three, &err));
            CHECK(print_of("one/*") == print_of("three/*"));
            CHECK_INT(one.bytes, three.bytes);
            CHECK(one.best == three.best);
            opts.seed = 6;
            CHECK_OK(data_gen(&opts, team, &three, &err));
            CHECK(print_of("one/*") != print_of("three/*"));
            team_destroy(team);
        }
    }
}

/* However it is asked for, the task stays a task: the best AUC is above chance and at most 0.85. */
TEST(the_best_auc_is_at_most_085)
{
    static const struct data_gen_opts cases[] = {
        {.seed = 1},
        {.seed = 2, .history_max = 39},
        {.seed = 3, .history_min = 1},
        {.seed = 4, .items = 6, .users = 10},
        {.seed = 5, .items = 1000000, .users = 10000000},
        {.seed = 6, .history_max = 300},
        {.seed = 7, .items = 1, .users = 1, .history_max = 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct data_gen_opts opts = cases[i];
        struct data_gen_result result;
        opts.out = "clicks";
        opts.rows = 100;
        opts.eval_rows = 20000;
        CHECK_OK(data_gen(&opts, NULL, &result, &err));
        if (result.best > 0.85 || result.best < 0.55) {
            test_fail(__FILE__, __LINE__, "case %zu: best AUC %g", i, result.best);
        }
        CHECK(result.click_rate > 0.2 && result.click_rate < 0.5);
    }
}

/* What is written can be read: all rows, histories within bounds, items in buckets of their own. */
TEST(generated_clicks_are_read_back)
{
    const struct data_gen_opts gen = {.out = "clicks",
                                      .rows = 3000,
                                      .eval_rows = 100,
                                      .history_min = 1,
                                      .history_max = 7,
                                      .files = 4,
                                      .seed = 1};
    struct data_gen_result result;
    CHECK_OK(data_gen(&gen, NULL, &result, &err));
    struct data_spec *spec = help_spec("label: {kind: label}\n"
                                       "item: {kind: dynamic, embed: 4, column: item_id}\n"
                                       "bucket: {kind: hash, buckets: 100, column: item_id}\n"
                                       "h: {kind: dynamic, embed: 4, sequence: true, "
                                       "column: clicked_items_15d}\n");
    const struct data_schema *schema = data_spec_schema(spec);
    struct data_opts opts = help_opts(spec, "clicks/train-*", 3000, 0);
    struct data *data = NULL;
    const struct batch *batch = NULL;
    CHECK_OK(data_open(&opts, &data, &err));
    CHECK_OK(data_next(data, NULL, &batch, NULL, &err));
    CHECK_INT(batch->rows, 3000);
    CHECK_INT(batch->tables[0].keys_count, batch->tables[1].keys_count);
    for (uint32_t row = 0; row < batch->rows; row++) {
        const uint32_t length = help_count(batch, schema, "h", row);
        CHECK(length >= 1 && length <= 7);
    }
    data_close(data);
    data_spec_destroy(spec);
}

TEST(slices_are_read_back)
{
    const struct data_gen_opts gen = {
        .kind = DATA_GEN_SLICES, .out = "slices", .rows = 2000, .eval_rows = 2000, .seed = 1};
    struct data_gen_result result;
    CHECK_OK(data_gen(&gen, NULL, &result, &err));
    CHECK_INT(result.files, 10);
    CHECK(result.best > 0.6 && result.best < 0.95);
    struct data_spec *spec = help_spec("label: {kind: label}\nx: {kind: numeric, width: 64}\n");
    struct data_opts opts = help_opts(spec, "slices/train-*", 2000, 0);
    struct data *data = NULL;
    const struct batch *batch = NULL;
    CHECK_OK(data_open(&opts, &data, &err));
    CHECK_OK(data_next(data, NULL, &batch, NULL, &err));
    CHECK_INT(batch->rows, 2000);
    for (uint32_t i = 0; i < 2000 * 64; i++) {
        CHECK(batch->dense[0][i] >= 0 && batch->dense[0][i] < 1);
    }
    data_close(data);
    data_spec_destroy(spec);
}

TEST(leftovers_of_another_run_go_away)
{
    struct data_gen_opts opts = {.out = "d", .rows = 10, .eval_rows = 10, .files = 8};
    struct data_gen_result result;
    struct io_list list;
    CHECK_OK(data_gen(&opts, NULL, &result, &err));
    help_write_text("d/train-notes.txt", "mine");
    opts.files = 2;
    CHECK_OK(data_gen(&opts, NULL, &result, &err));
    CHECK_OK(io_glob("d/*", &list, &err));
    CHECK_INT(list.count, 2 + 1 + 1);
    CHECK(io_exists("d/train-notes.txt"));
    io_list_fini(&list);
}

TEST(impossible_wishes_are_refused)
{
    static const struct data_gen_opts cases[] = {
        {.out = NULL},
        {.out = "d", .history_min = 9, .history_max = 8},
        {.out = "d", .history_max = 1u << 20},
        {.out = "d", .files = 100000},
        {.out = "d", .eval_rows = 1ull << 40},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct data_gen_result result;
        CHECK_INT(data_gen(&cases[i], NULL, &result, &err), SHOAL_EINVAL);
        CHECK(!io_exists("d"));
    }
    help_write_text("file", "");
    struct data_gen_result result;
    CHECK(data_gen(&(struct data_gen_opts){.out = "file/d"}, NULL, &result, &err) != 0);
}

TEST(reports_say_the_same_in_both_forms)
{
    struct str out = {0};
    const struct data_gen_opts opts = {.out = "d"};
    const struct data_gen_result result = {
        .rows = 1000, .best = 0.825, .files = 8, .eval_files = 2};
    data_gen_report(&opts, &result, true, &out);
    CHECK_HAS(out.text, "\"best_auc\": 0.825");
    CHECK_HAS(out.text, "\"rows\": 1000");
    str_clear(&out);
    data_gen_report(&opts, &result, false, &out);
    CHECK_HAS(out.text, "1,000 rows in 8 files");
    CHECK_HAS(out.text, "0.8250");
    str_fini(&out);
}

TEST(out_of_memory_is_an_error)
{
    const struct data_gen_opts opts = {
        .out = "d", .rows = 50, .eval_rows = 10, .files = 1, .compress = DATA_GZIP};
    for (uint64_t nth = 1;; nth++) {
        struct data_gen_result result;
        mem_fail_nth(nth);
        const int rc = data_gen(&opts, NULL, &result, &err);
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        CHECK_INT(mem_bytes(MEM_DATA), 0);
        if (!failed) break;
    }
}

TEST(the_input_benchmark_reads_all)
{
    struct data_bench_result result;
    CHECK_OK(data_bench_input(NULL, 3000, NULL, &result, &err));
    CHECK_INT(result.examples, 3000);
    CHECK(result.examples_per_second > 0);
    CHECK_INT(data_bench_input("nowhere/*", 0, NULL, &result, &err), SHOAL_ENOENT);
}
