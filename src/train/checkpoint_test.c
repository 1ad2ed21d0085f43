#include "train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../tests/test.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "train/checkpoint_fixture.h"
#include "train/checkpoint_manifest.h"

static struct err err;

static void save(struct store *store, const char *model_dir, uint64_t step, uint32_t keep)
{
    CHECK_OK(checkpoint_save(&(struct checkpoint_save){.model_dir = model_dir,
                                                       .step = step,
                                                       .config = "{\"seed\": 1}",
                                                       .position = "{\"lease\": 7}",
                                                       .keep = keep},
                             store, &err));
}

static struct store *restored(const char *folder)
{
    struct store *store = fixture_create();
    struct checkpoint *checkpoint = NULL;
    CHECK_OK(checkpoint_restore(folder, store, &checkpoint, &err));
    checkpoint_close(checkpoint);
    return store;
}

static void check_restores(const char *folder, struct store *want)
{
    struct store *got = restored(folder);
    fixture_check_equal(got, want);
    store_destroy(got);
}

/* The steps in model_dir, as text. */
static const char *steps_in(const char *model_dir)
{
    static char text[256];
    struct checkpoint_list list;
    CHECK_OK(checkpoint_list(model_dir, &list, &err));
    text[0] = '\0';
    for (size_t i = 0; i < list.count; i++) {
        sprintf(text + strlen(text), "%s%llu", i > 0 ? " " : "", (unsigned long long)list.steps[i]);
    }
    checkpoint_list_fini(&list);
    return text;
}

static char *read_text(const char *path, size_t *count_out)
{
    char *bytes = NULL;
    CHECK_OK(io_read_whole(path, (size_t)1 << 24, &bytes, count_out, &err));
    return bytes;
}

/* Overwrites in place: no temporary file beside. */
static void write_bytes(const char *path, const char *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK(fwrite(bytes, 1, count, file) == count);
    CHECK(fclose(file) == 0);
}

TEST(what_is_saved_is_restored)
{
    struct store *store = fixture_trained(5);
    save(store, "m", 5, 0);
    struct store *other = fixture_create();
    struct checkpoint *checkpoint = NULL;
    CHECK_OK(checkpoint_restore("m/ckpt-5", other, &checkpoint, &err));
    fixture_check_equal(other, store);
    CHECK_INT(checkpoint->step, 5);
    CHECK_STR(checkpoint->config, "{\"seed\": 1}");
    CHECK_STR(checkpoint->position, "{\"lease\": 7}");
    CHECK_INT(checkpoint->tables_count, 6);
    CHECK_INT(checkpoint->tables[5].rows, FIXTURE_WORDS);
    /* Training goes on from there in the same way. */
    fixture_train(store, 6);
    fixture_train(other, 6);
    fixture_check_equal(other, store);
    checkpoint_close(checkpoint);
    store_destroy(store);
    store_destroy(other);
    CHECK_INT(mem_bytes_total(), 0);
}

TEST(a_store_without_rows_or_tables_is_saved_too)
{
    struct store *store = fixture_create();
    save(store, "m", 0, 0);
    check_restores("m/ckpt-0", store);
    store_destroy(store);
    CHECK_OK(store_create(&(struct store_opts){.seed = 1}, &store, &err));
    save(store, "n", 1, 0);
    struct checkpoint *checkpoint = NULL;
    CHECK_OK(checkpoint_restore("n/ckpt-1", store, &checkpoint, &err));
    checkpoint_close(checkpoint);
    store_destroy(store);
}

/* The same state gives the same files, byte by byte. */
TEST(the_same_state_is_the_same_bytes)
{
    struct store *store = fixture_trained(3);
    save(store, "m", 3, 0);
    save(store, "n", 3, 0);
    struct io_list list;
    CHECK_OK(io_list_dir("m/ckpt-3", &list, &err));
    CHECK_INT(list.count, 2);
    for (size_t i = 0; i < list.count; i++) {
        char path[2][256];
        size_t counts[2];
        char *bytes[2];
        for (int k = 0; k < 2; k++) {
            snprintf(path[k], sizeof path[k], "%s/ckpt-3/%s", k == 0 ? "m" : "n", list.paths[i]);
            bytes[k] = read_text(path[k], &counts[k]);
        }
        CHECK_INT(counts[0], counts[1]);
        CHECK(memcmp(bytes[0], bytes[1], counts[0]) == 0);
        mem_free(bytes[0]);
        mem_free(bytes[1]);
    }
    io_list_fini(&list);
    store_destroy(store);
}

static bool owns_by_turns(void *ctx, uint32_t table, uint32_t shard)
{
    return (table + shard) % 3 == *(uint32_t *)ctx;
}

/* Three processes write the shards they own, piece by piece while training goes on; one commits. */
TEST(several_writers_make_one_checkpoint)
{
    struct store *want = fixture_trained(4);
    struct store *store = fixture_trained(4);
    struct str parts[3] = {{0}};
    CHECK_OK(checkpoint_begin("m", 4, &err));
    for (uint32_t w = 0; w < 3; w++) {
        struct checkpoint_writer *writer = NULL;
        const struct checkpoint_writer_opts opts = {.model_dir = "m",
                                                    .step = 4,
                                                    .writer = w,
                                                    .store = store,
                                                    .owns = owns_by_turns,
                                                    .ctx = &w};
        struct store *mine = fixture_trained(4); /* each process has its own store */
        struct checkpoint_writer_opts own = opts;
        own.store = mine;
        CHECK_OK(checkpoint_writer_open(&own, &writer, &err));
        int pieces = 0;
        for (bool done = false; !done; pieces++) {
            CHECK_OK(checkpoint_writer_step(writer, 1, &done, &err));
            if (pieces < 3) fixture_train(mine, 5 + (uint64_t)pieces);
        }
        CHECK(pieces > 10);
        CHECK_OK(checkpoint_writer_finish(writer, &parts[w], &err));
        checkpoint_writer_destroy(writer);
        store_destroy(mine);
    }
    CHECK_STR(steps_in("m"), "");
    const struct checkpoint_save commit = {.model_dir = "m", .step = 4};
    const char *texts[] = {parts[0].text, parts[1].text, parts[2].text, parts[1].text};
    CHECK_INT(checkpoint_commit(&commit, texts, 2, &err), SHOAL_ECORRUPT);
    CHECK_HAS(err.text, "is missing");
    CHECK_INT(checkpoint_commit(&commit, texts, 4, &err), SHOAL_ECORRUPT);
    CHECK_HAS(err.text, "twice");
    CHECK_OK(checkpoint_commit(&commit, texts, 3, &err));
    check_restores("m/ckpt-4", want);
    for (int w = 0; w < 3; w++) str_fini(&parts[w]);
    store_destroy(store);
    store_destroy(want);
}

/* Flipping any byte of any file, cutting it at any length, making it longer or taking it away is
 * found at load, and the message names the file. */
TEST(any_damage_is_found_and_named)
{
    struct store *store = fixture_trained(2);
    save(store, "m", 2, 0);
    struct store *into = fixture_create();
    struct io_list list;
    CHECK_OK(io_list_dir("m/ckpt-2", &list, &err));
    CHECK_INT(list.count, 2);
    for (size_t f = 0; f < list.count; f++) {
        char path[256];
        snprintf(path, sizeof path, "m/ckpt-2/%s", list.paths[f]);
        size_t count = 0;
        char *bytes = read_text(path, &count);
        struct checkpoint *checkpoint = NULL;
        const int fd = open(path, O_WRONLY);
        for (size_t at = 0; at < count; at++) {
            const char flipped = (char)(bytes[at] ^ (1 << at % 8));
            CHECK(pwrite(fd, &flipped, 1, (off_t)at) == 1);
            CHECK_INT(checkpoint_restore("m/ckpt-2", into, &checkpoint, &err), SHOAL_ECORRUPT);
            CHECK_HAS(err.text, path);
            CHECK(pwrite(fd, &bytes[at], 1, (off_t)at) == 1);
        }
        for (size_t length = count + 2; length-- > 0;) { /* one byte too many, then ever fewer */
            if (length == count) continue;
            CHECK(ftruncate(fd, (off_t)length) == 0);
            CHECK_INT(checkpoint_restore("m/ckpt-2", into, &checkpoint, &err), SHOAL_ECORRUPT);
            CHECK_HAS(err.text, path);
        }
        close(fd);
        CHECK(unlink(path) == 0);
        CHECK_INT(checkpoint_restore("m/ckpt-2", into, &checkpoint, &err), SHOAL_ECORRUPT);
        CHECK_HAS(err.text, path);
        CHECK_HAS(err.text, "is missing");
        CHECK_HAS(err.text, "there is no older checkpoint that is whole");
        write_bytes(path, bytes, count);
        mem_free(bytes);
    }
    io_list_fini(&list);
    check_restores("m/ckpt-2", store); /* mended, it is whole again */
    store_destroy(into);
    store_destroy(store);
}

/* The newest checkpoint is damaged, and so is the one before: the third is offered, with a command
 * that makes it the newest. */
TEST(an_older_whole_checkpoint_is_offered)
{
    struct store *store = fixture_trained(1);
    for (uint64_t step = 10; step <= 30; step += 10) save(store, "m", step, 0);
    write_bytes("m/ckpt-30/part-0-0.safetensors", "x", 1);
    CHECK(unlink("m/ckpt-20/manifest.json") == 0);
    struct store *into = fixture_create();
    struct checkpoint *checkpoint = NULL;
    CHECK_INT(checkpoint_restore("m/ckpt-30", into, &checkpoint, &err), SHOAL_ECORRUPT);
    CHECK_HAS(err.text, "m/ckpt-30/part-0-0.safetensors has 1 bytes");
    const char *command = strstr(err.text, "m/ckpt-10 is whole: to go on from it, `mv ");
    CHECK(command != NULL);
    CHECK_HAS(err.text, "`mv m/ckpt-30 m/damaged-ckpt-30`");
    CHECK(rename("m/ckpt-30", "m/damaged-ckpt-30") == 0);
    CHECK_STR(steps_in("m"), "10 20");
    store_destroy(into);
    store_destroy(store);
}

TEST(the_last_ones_are_kept)
{
    struct store *store = fixture_trained(1);
    for (uint64_t step = 9; step <= 12; step++) save(store, "m", step, 2);
    CHECK_STR(steps_in("m"), "11 12");
    save(store, "m", 3, 2); /* what was just saved is not the one to go */
    CHECK_STR(steps_in("m"), "3 11 12");
    save(store, "m", 4, 1);
    CHECK_STR(steps_in("m"), "4 12");
    struct io_list list;
    CHECK_OK(io_list_dir("m", &list, &err));
    CHECK_INT(list.count, 2); /* nothing temporary is left */
    io_list_fini(&list);
    store_destroy(store);
}

TEST(a_checkpoint_of_the_same_step_is_replaced)
{
    struct store *store = fixture_trained(1);
    save(store, "m", 7, 0);
    fixture_train(store, 2);
    save(store, "m", 7, 0);
    check_restores("m/ckpt-7", store);
    CHECK_STR(steps_in("m"), "7");
    store_destroy(store);
}

/* What a killed process leaves behind is not seen, and gone after a clean start; a checkpoint that
 * was being replaced comes back. */
TEST(leftovers_are_not_seen_and_cleaned_up)
{
    struct store *store = fixture_trained(1);
    CHECK_OK(checkpoint_clean("m", &err)); /* no such folder: nothing to do */
    save(store, "m", 1, 0);
    CHECK_OK(checkpoint_begin("m", 2, &err));
    write_bytes("m/.tmp-ckpt-2/part-0-0.safetensors", "half", 4);
    CHECK(mkdir("m/.tmp-drop-ckpt-9", 0777) == 0);
    CHECK(mkdir("m/ckpt-07", 0777) == 0);
    CHECK(mkdir("m/ckpt-x", 0777) == 0);
    CHECK(rename("m/ckpt-1", "m/.old-ckpt-1") == 0);
    CHECK_STR(steps_in("m"), "");
    CHECK_OK(checkpoint_clean("m", &err));
    CHECK_STR(steps_in("m"), "1");
    check_restores("m/ckpt-1", store);
    save(store, "m", 5, 0);
    CHECK(rename("m/ckpt-5", "m/.old-ckpt-1") == 0);
    CHECK_OK(checkpoint_clean("m", &err)); /* the new one is there: the old one goes */
    CHECK_STR(steps_in("m"), "1");
    CHECK(!io_exists("m/.old-ckpt-1"));
    CHECK(!io_exists("m/.tmp-ckpt-2"));
    CHECK(!io_exists("m/.tmp-drop-ckpt-9"));
    CHECK(io_exists("m/ckpt-x")); /* not ours */
    store_destroy(store);
}

TEST(a_path_is_resolved_to_a_checkpoint)
{
    struct store *store = fixture_trained(1);
    save(store, "m", 9, 0);
    save(store, "m", 10, 0);
    CHECK(mkdir("empty", 0777) == 0);
    static const struct {
        const char *path;
        const char *want; /* NULL: SHOAL_ENOENT */
    } cases[] = {
        {"m", "m/ckpt-10"},         {"m/", "m//ckpt-10"}, {"m/ckpt-9", "m/ckpt-9"},
        {"m/ckpt-9/", "m/ckpt-9/"}, {"empty", NULL},      {"absent", NULL},
        {"m/ckpt-11", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = NULL;
        const int rc = checkpoint_resolve(cases[i].path, &path, &err);
        CHECK_INT(rc, cases[i].want == NULL ? SHOAL_ENOENT : 0);
        if (rc == 0) CHECK_STR(path, cases[i].want);
        if (rc != 0) CHECK_HAS(err.text, cases[i].path);
        mem_free(path);
    }
    store_destroy(store);
}

/* A table of another model: what differs is said in words. */
static void check_difference(const struct store_table_opts *opts, const char *want)
{
    struct store *other = NULL;
    CHECK_OK(store_create(&(struct store_opts){.seed = 1}, &other, &err));
    fixture_add(other, opts);
    struct checkpoint *checkpoint = NULL;
    struct str difference = {0};
    CHECK_OK(checkpoint_open("m/ckpt-1", &checkpoint, &err));
    CHECK_INT(checkpoint_compare(checkpoint, other, &difference, &err), SHOAL_EMISMATCH);
    CHECK_STR(difference.text, want);
    CHECK_HAS(err.text, "the model does not fit m/ckpt-1: ");
    CHECK_HAS(err.text, "use another model_dir");
    checkpoint_close(checkpoint);
    CHECK_INT(checkpoint_restore("m/ckpt-1", other, &checkpoint, &err), SHOAL_EMISMATCH);
    str_fini(&difference);
    store_destroy(other);
}

TEST(a_model_that_does_not_fit_is_refused_with_the_difference)
{
    const struct store_rule adagrad = store_rule_default(STORE_ADAGRAD, 0.1);
    const struct store_rule adam = store_rule_default(STORE_LAZY_ADAM, 0.1);
    const struct store_rule sgd = store_rule_default(STORE_SGD, 0.1);
    struct store *store = NULL;
    CHECK_OK(store_create(&(struct store_opts){.seed = 1}, &store, &err));
    const struct store_table_opts saved = {
        .name = "u", .kind = STORE_FIXED, .rows = 10, .cols = 3, .rule = adagrad};
    fixture_add(store, &saved);
    save(store, "m", 1, 0);
    store_destroy(store);
    struct store_table_opts opts = saved;
    opts.rows = 20;
    check_difference(&opts, "u: fixed 10 x 3 in the checkpoint, fixed 20 x 3 in the model\n");
    opts = saved;
    opts.cols = 4;
    check_difference(&opts, "u: fixed 10 x 3 in the checkpoint, fixed 10 x 4 in the model\n");
    opts = saved;
    opts.kind = STORE_DYNAMIC;
    opts.shards = 1;
    check_difference(&opts, "u: fixed 10 x 3 in the checkpoint, dynamic rows of 3 in the model\n");
    opts = saved;
    opts.shards = 2;
    check_difference(&opts, "u: 1 shards in the checkpoint, 2 in the model\n");
    opts = saved;
    opts.rule = adam;
    check_difference(&opts, "u: optimizer adagrad (adagrad) in the checkpoint, lazy_adam (m, v) in "
                            "the model\n");
    opts = saved;
    opts.rule = sgd;
    check_difference(&opts, "u: optimizer adagrad (adagrad) in the checkpoint, sgd (no slots) in "
                            "the model\n");
    opts = saved;
    opts.average_decay = 0.9;
    check_difference(&opts, "u: optimizer adagrad (adagrad) in the checkpoint, adagrad (adagrad, "
                            "average) in the model\n");
    opts = saved;
    opts.name = "w";
    check_difference(&opts, "u: only in the checkpoint\nw: only in the model\n");
}

/* ---- Whole files -------------------------------------------------------------------------------- */

/* The rows of a table in a store as a file should have them: one part, keys ascending. */
static void check_whole(const struct safetensors *file, struct store *store, const char *name,
                        const uint64_t *keys, uint32_t count)
{
    uint32_t table = 0;
    CHECK_OK(store_table_find(store, name, &table, &err));
    const struct store_table_info info = store_table_info(store, table);
    for (uint32_t part = 0; part < info.parts; part++) {
        struct str full = {0};
        checkpoint_tensor_name(&full, name, store_part_name(store, table, part), 0, 1);
        const struct safetensors_tensor *tensor = safetensors_find(file, full.text);
        if (tensor == NULL) test_fail(__FILE__, __LINE__, "no tensor %s", full.text);
        float *want = calloc((size_t)count * info.cols, sizeof *want);
        CHECK(want != NULL);
        if (info.kind == STORE_DENSE) {
            CHECK_OK(
                store_fetch_dense(store, table, part, 0, (uint64_t)count * info.cols, want, &err));
        } else {
            struct store_rows rows = {.table = table, .count = count, .keys = keys};
            rows.parts[part] = want;
            CHECK_OK(store_fetch_rows(store, &rows, &err));
        }
        CHECK_INT(tensor->bytes_count, (size_t)count * info.cols * sizeof *want);
        CHECK(memcmp(tensor->bytes, want, tensor->bytes_count) == 0);
        free(want);
        str_fini(&full);
    }
}

TEST(an_export_has_every_tensor_whole)
{
    struct store *store = fixture_trained(3);
    save(store, "m", 3, 0);
    CHECK_OK(checkpoint_export("m/ckpt-3", "whole.safetensors", &err));
    CHECK(!io_exists("whole.safetensors.tmp"));
    struct safetensors *file = NULL;
    CHECK_OK(safetensors_open("whole.safetensors", &file, &err));
    /* 2 + 1 + 3 dense, 2 fixed, 4 and steps fixed, 3, keys, steps and counts dynamic */
    CHECK_STR(safetensors_metadata(file, "step"), "3");
    static const uint64_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    static const uint64_t words[] = {(uint64_t)1 << 63, UINT64_MAX, 0, 5, 6, 77, 123456789};
    check_whole(file, store, "hidden/0/weight", rows, 6);
    check_whole(file, store, "hidden/0/bias", rows, 1);
    check_whole(file, store, "output/weight", rows, 5);
    check_whole(file, store, "user_id/embedding", rows, 10);
    check_whole(file, store, "item/embedding", rows, 11);
    check_whole(file, store, "word/embedding", words, FIXTURE_WORDS);
    const struct safetensors_tensor *keys = safetensors_find(file, "word/keys");
    CHECK(keys != NULL);
    CHECK_INT(keys->type, SAFETENSORS_I64);
    CHECK(memcmp(keys->bytes, words, sizeof words) == 0);
    const struct safetensors_tensor *bias = safetensors_find(file, "hidden/0/bias");
    CHECK_INT(bias->dims_count, 1);
    CHECK_INT(bias->dims[0], 5);
    const struct safetensors_tensor *weight = safetensors_find(file, "output/weight/average");
    CHECK_INT(weight->dims_count, 2);
    CHECK_INT(weight->dims[0], 5);
    safetensors_close(file);

    /* From that one file another model starts with the same values and slots. */
    struct store *other = fixture_create();
    struct checkpoint_init_report report;
    CHECK_OK(checkpoint_init_from("whole.safetensors", other, &report, &err));
    CHECK_INT(report.unknown.bytes, 0);
    CHECK_INT(report.missing.bytes, 0);
    checkpoint_init_report_fini(&report);
    save(other, "n", 3, 0);
    CHECK_OK(checkpoint_export("n/ckpt-3", "again.safetensors", &err));
    size_t counts[2];
    char *first = read_text("whole.safetensors", &counts[0]);
    char *second = read_text("again.safetensors", &counts[1]);
    CHECK_INT(counts[0], counts[1]);
    CHECK(memcmp(first, second, counts[0]) == 0);
    mem_free(first);
    mem_free(second);
    store_destroy(store);
    store_destroy(other);
}

TEST(exports_of_damaged_checkpoints_are_refused)
{
    struct store *store = fixture_trained(1);
    save(store, "m", 1, 0);
    write_bytes("m/ckpt-1/part-0-0.safetensors", "x", 1);
    CHECK_INT(checkpoint_export("m/ckpt-1", "out", &err), SHOAL_ECORRUPT);
    CHECK(!io_exists("out"));
    CHECK(checkpoint_export("m/ckpt-2", "out", &err) != 0);
    store_destroy(store);
}

/* ---- train.init_from ---------------------------------------------------------------------------- */

static void add_dense(struct store *store, const char *name, uint64_t rows, uint32_t cols)
{
    fixture_add(store, &(struct store_table_opts){.name = name,
                                                  .kind = STORE_DENSE,
                                                  .rows = rows,
                                                  .cols = cols,
                                                  .rule = store_rule_default(STORE_ADAGRAD, 0.1)});
}

/* The golden files have whole tensors by the same names. */
TEST(values_are_taken_from_a_file_with_whole_tensors)
{
    struct store *store = NULL;
    CHECK_OK(store_create(&(struct store_opts){.seed = 1}, &store, &err));
    fixture_add(store, &(struct store_table_opts){.name = "user_id/embedding",
                                                  .kind = STORE_FIXED,
                                                  .rows = 10000,
                                                  .cols = 16,
                                                  .shards = 16,
                                                  .rule = store_rule_default(STORE_ADAGRAD, 0.1)});
    add_dense(store, "hidden/0/weight", 54, 64);
    add_dense(store, "hidden/0/bias", 1, 64);
    add_dense(store, "mine/weight", 2, 2);
    struct checkpoint_init_report report;
    CHECK_OK(checkpoint_init_from(test_path("golden/din/final.safetensors"), store, &report, &err));
    CHECK_INT(report.loaded, 6);
    CHECK_STR(report.missing.text, "mine/weight");
    CHECK_HAS(report.unknown.text, "age/embedding, age/embedding/adagrad, attention/0/bias");
    CHECK(strstr(report.unknown.text, "hidden/0") == NULL);
    checkpoint_init_report_fini(&report);

    struct safetensors *file = NULL;
    CHECK_OK(safetensors_open(test_path("golden/din/final.safetensors"), &file, &err));
    static uint64_t keys[10000];
    for (uint64_t i = 0; i < 10000; i++) keys[i] = i;
    check_whole(file, store, "user_id/embedding", keys, 10000);
    check_whole(file, store, "hidden/0/weight", keys, 54);
    check_whole(file, store, "hidden/0/bias", keys, 1);
    safetensors_close(file);
    store_destroy(store);
}

TEST(values_are_taken_from_a_checkpoint)
{
    struct store *store = fixture_trained(3);
    save(store, "m", 3, 0);
    store_destroy(store);
    /* Another model: one table is the same but for the optimizer, one is new. */
    struct store *other = NULL;
    CHECK_OK(store_create(&(struct store_opts){.seed = 1}, &other, &err));
    fixture_add(other, &(struct store_table_opts){.name = "item/embedding",
                                                  .kind = STORE_FIXED,
                                                  .rows = 11,
                                                  .cols = 2,
                                                  .rule = store_rule_default(STORE_SGD, 0.1)});
    add_dense(other, "mine/weight", 2, 2);
    static const char *const paths[] = {"m", "m/ckpt-3"};
    for (int i = 0; i < 2; i++) {
        struct checkpoint_init_report report;
        CHECK_OK(checkpoint_init_from(paths[i], other, &report, &err));
        CHECK_INT(report.loaded, 1);
        CHECK_STR(report.missing.text, "mine/weight");
        CHECK_HAS(report.unknown.text, "user_id/embedding, item/embedding/m, item/embedding/v");
        checkpoint_init_report_fini(&report);
    }
    CHECK_OK(checkpoint_export("m/ckpt-3", "whole", &err));
    struct safetensors *file = NULL;
    CHECK_OK(safetensors_open("whole", &file, &err));
    static const uint64_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    check_whole(file, other, "item/embedding", rows, 11);
    safetensors_close(file);
    store_destroy(other);
}

TEST(what_does_not_fit_is_not_taken)
{
    struct store *store = fixture_trained(2);
    save(store, "m", 2, 0);
    CHECK_OK(checkpoint_export("m/ckpt-2", "whole", &err));
    store_destroy(store);
    static const struct {
        const char *name;
        enum store_kind kind;
        uint64_t rows;
        uint32_t cols;
        const char *text;        /* of the error for the file */
        const char *folder_text; /* and for the checkpoint */
    } cases[] = {
        {"hidden/0/weight", STORE_DENSE, 5, 6,
         "hidden/0/weight is F32 x 6 x 5, the model wants F32 "
         "x 5 x 6",
         "the model wants dense 5 x 6"},
        {"user_id/embedding", STORE_FIXED, 11, 3, "F32 x 10 x 3", "fixed 11 x 3"},
        {"user_id/embedding", STORE_DYNAMIC, 0, 3, "no user_id/keys: the table is dynamic",
         "the model wants dynamic"},
        {"word/embedding", STORE_FIXED, 7, 3, "F32 x 7 x 2", "the model wants fixed 7 x 3"},
        {"none/of/it", STORE_DENSE, 5, 6, "no tensor of this model; it has: hidden/0/weight, ",
         "no tensor of this model; it has: hidden/0/weight, "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct store *other = NULL;
        CHECK_OK(store_create(&(struct store_opts){.seed = 1}, &other, &err));
        fixture_add(other, &(struct store_table_opts){.name = cases[i].name,
                                                      .kind = cases[i].kind,
                                                      .rows = cases[i].rows,
                                                      .cols = cases[i].cols,
                                                      .rule = store_rule_default(STORE_SGD, 0.1)});
        CHECK_INT(checkpoint_init_from("whole", other, NULL, &err), SHOAL_EMISMATCH);
        CHECK_HAS(err.text, cases[i].text);
        CHECK_INT(checkpoint_init_from("m", other, NULL, &err), SHOAL_EMISMATCH);
        CHECK_HAS(err.text, cases[i].folder_text);
        store_destroy(other);
    }
    store = fixture_create();
    CHECK_INT(checkpoint_init_from("absent", store, NULL, &err), SHOAL_ENOENT);
    write_bytes("m/ckpt-2/part-0-0.safetensors", "x", 1);
    CHECK_INT(checkpoint_init_from("m", store, NULL, &err), SHOAL_ECORRUPT);
    store_destroy(store);
    CHECK_INT(mem_bytes_total(), 0);
}

/* ---- The world goes wrong ----------------------------------------------------------------------- */

static void check_untouched(const char *model_dir, struct store *store)
{
    struct io_list list;
    CHECK_OK(io_list_dir(model_dir, &list, &err));
    CHECK_INT(list.count, 1);
    CHECK_STR(list.paths[0], "ckpt-1");
    io_list_fini(&list);
    check_restores("m/ckpt-1", store);
}

/* A disk that is full at any point of the way: the error says so, nothing temporary stays, and what
 * was saved before is whole. */
TEST(a_full_disk_loses_nothing)
{
    struct store *store = fixture_trained(1);
    save(store, "m", 1, 0);
    struct checkpoint *checkpoint = NULL;
    CHECK_OK(checkpoint_open("m/ckpt-1", &checkpoint, &err));
    const uint64_t largest = checkpoint->files[0].bytes > checkpoint->bytes / 2
                                 ? checkpoint->files[0].bytes
                                 : checkpoint->bytes - checkpoint->files[0].bytes;
    checkpoint_close(checkpoint);
    signal(SIGXFSZ, SIG_IGN);
    const struct checkpoint_save next = {.model_dir = "m", .step = 2, .keep = 1};
    for (uint64_t limit = 0; limit < largest; limit += 97) {
        const struct rlimit few = {.rlim_cur = limit, .rlim_max = RLIM_INFINITY};
        const struct rlimit all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
        CHECK(setrlimit(RLIMIT_FSIZE, &few) == 0);
        const int rc = checkpoint_save(&next, store, &err);
        CHECK(setrlimit(RLIMIT_FSIZE, &all) == 0);
        CHECK_INT(rc, SHOAL_ESPACE);
        CHECK_HAS(err.text, "save the checkpoint of step 2 to m: ");
        check_untouched("m", store);
    }
    store_destroy(store);
}

TEST(no_permission_loses_nothing)
{
    struct store *store = fixture_trained(1);
    save(store, "m", 1, 0);
    CHECK(chmod("m", 0555) == 0);
    CHECK(chmod(".", 0755) == 0);
    const uid_t user = geteuid();
    if (user == 0) CHECK(seteuid(65534) == 0);
    CHECK_INT(checkpoint_save(&(struct checkpoint_save){.model_dir = "m", .step = 2}, store, &err),
              SHOAL_EACCES);
    CHECK_HAS(err.text, "m/.tmp-ckpt-2");
    CHECK_INT(
        checkpoint_save(&(struct checkpoint_save){.model_dir = "new/er", .step = 2}, store, &err),
        SHOAL_EACCES);
    if (user == 0) CHECK(seteuid(user) == 0);
    CHECK(chmod("m", 0755) == 0);
    check_untouched("m", store);
    write_bytes("file", "x", 1);
    CHECK(checkpoint_save(&(struct checkpoint_save){.model_dir = "file"}, store, &err) != 0);
    CHECK_HAS(err.text, "file");
    store_destroy(store);
}

TEST(a_config_that_is_no_json_is_refused_before_anything_is_seen)
{
    struct store *store = fixture_trained(1);
    save(store, "m", 1, 0);
    static const char *const wrong[] = {"{", "", "1,\n\"step\": 3", "{}, \"x\": 1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct checkpoint_save next = {.model_dir = "m", .step = 2, .config = wrong[i]};
        CHECK_INT(checkpoint_save(&next, store, &err), SHOAL_EINVAL);
        check_untouched("m", store);
    }
    /* Numbers of all 64 bits and line breaks go through. */
    const struct checkpoint_save next = {.model_dir = "m",
                                         .step = 2,
                                         .config = "{\"seed\":\n18446744073709551615}",
                                         .position = "{\"a\": \"x,\\ny\"}"};
    CHECK_OK(checkpoint_save(&next, store, &err));
    struct checkpoint *checkpoint = NULL;
    CHECK_OK(checkpoint_open("m/ckpt-2", &checkpoint, &err));
    CHECK_STR(checkpoint->config, "{\"seed\": 18446744073709551615}");
    CHECK_STR(checkpoint->position, "{\"a\": \"x,\\ny\"}");
    checkpoint_close(checkpoint);
    store_destroy(store);
}

static int scenario(struct store *store, struct store *into)
{
    struct checkpoint *checkpoint = NULL;
    int rc = checkpoint_save(&(struct checkpoint_save){.model_dir = "m", .step = 2, .keep = 2},
                             store, &err);
    if (rc == 0) rc = checkpoint_restore("m/ckpt-2", into, &checkpoint, &err);
    checkpoint_close(checkpoint);
    if (rc == 0) rc = checkpoint_export("m/ckpt-2", "whole", &err);
    if (rc == 0) rc = checkpoint_init_from("whole", into, NULL, &err);
    if (rc == 0) rc = checkpoint_init_from("m", into, NULL, &err);
    return rc;
}

/* The nth allocation fails, for every n: an error, no leak, and what was saved is there. */
TEST(every_failed_allocation_is_an_error)
{
    struct store *store = fixture_trained(2);
    save(store, "m", 1, 0);
    for (uint64_t nth = 1;; nth++) {
        struct store *into = fixture_create();
        const size_t before = mem_bytes(MEM_TRAIN) + mem_bytes(MEM_IO) + mem_bytes(MEM_BASE);
        mem_fail_nth(nth);
        const int rc = scenario(store, into);
        const bool failed = mem_fail_nth(0);
        CHECK_INT(mem_bytes(MEM_TRAIN) + mem_bytes(MEM_IO) + mem_bytes(MEM_BASE), before);
        if (rc != 0) CHECK_INT(rc, SHOAL_ENOMEM);
        CHECK(io_exists("m/ckpt-1/manifest.json"));
        CHECK(!io_exists("m/.tmp-ckpt-2"));
        store_destroy(into);
        if (!failed) {
            CHECK_INT(rc, 0);
            break;
        }
    }
    check_restores("m/ckpt-1", store);
    check_restores("m/ckpt-2", store);
    store_destroy(store);
}
