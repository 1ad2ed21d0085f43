#include "train/checkpoint_manifest.h"

#include "../tests/test.h"
#include "base/mem.h"
#include "io/file.h"

static struct err err;

#define HEAD "{\n\"format\": \"shoal-checkpoint\",\n\"version\": 1,\n\"step\": 9,\n"
#define JOB "\"config\": {\"a\": 1},\n\"position\": {},\n"
#define SHARD(n) "{\"shard\": " #n ", \"file\": 0, \"version\": 4, \"rows\": 2, \"first\": 0, "
#define STREAM                                                                                     \
    "\"streams\": [{\"kind\": \"lease\", \"stream\": \"18446744073709551615\", \"token\": \"2\", " \
    "\"number\": \"3\"}]}"
#define TABLE(kind, rows, cols, shards)                                                            \
    "{\"name\": \"t\", \"kind\": \"" kind "\", \"rows\": " rows ", \"cols\": " cols                \
    ", \"shards\": " shards ", \"optimizer\": \"sgd\", \"parts\": [\"\"], \"average_decay\": 0, "  \
    "\"steps\": false, \"counts\": false, \"states\": ["
#define FILES "],\n\"files\": [\n{\"name\": \"f\", \"bytes\": 10, \"crc32c\": \"0123abcd\"}\n],\n"
#define FIXED TABLE("fixed", "4", "3", "2") SHARD(0) STREAM ", " SHARD(1) STREAM "]}\n"

static int parse(const char *body, struct checkpoint **checkpoint_out)
{
    struct str text = {0};
    str_add(&text, body);
    checkpoint_manifest_seal(&text);
    const int rc = checkpoint_parse("ckpt", text.text, text.bytes, checkpoint_out, &err);
    str_fini(&text);
    return rc;
}

TEST(a_manifest_is_read_as_it_was_written)
{
    struct checkpoint *checkpoint = NULL;
    CHECK_OK(parse(HEAD JOB "\"tables\": [\n" FIXED FILES, &checkpoint));
    CHECK_STR(checkpoint->folder, "ckpt");
    CHECK_INT(checkpoint->step, 9);
    CHECK_STR(checkpoint->config, "{\"a\": 1}");
    CHECK_INT(checkpoint->tables_count, 1);
    CHECK_INT(checkpoint->files_count, 1);
    CHECK_INT(checkpoint->files[0].crc32c, 0x0123abcd);
    const struct store_shard *state = &checkpoint->tables[0].shards[1].state;
    CHECK_INT(state->streams_count, 1);
    CHECK(state->streams[0].stream == UINT64_MAX);
    struct str text = {0};
    struct str want = {0};
    checkpoint_manifest_write(checkpoint, &text);
    str_add(&want, HEAD JOB "\"tables\": [\n" FIXED FILES);
    checkpoint_manifest_seal(&want);
    CHECK_STR(text.text, want.text);
    str_fini(&text);
    str_fini(&want);
    checkpoint_close(checkpoint);
    CHECK_INT(mem_bytes_total(), 0);
}

/* Text that has the right checksum and is still wrong: by a foreign hand, or by a bug of ours. */
TEST(what_does_not_hold_together_is_refused)
{
    static const struct {
        const char *name;
        const char *body;
        int want;
        const char *text;
    } cases[] = {
        {"empty", "", SHOAL_ECORRUPT, "line 1"},
        {"no object", "[1, ", SHOAL_ECORRUPT, ""},
        {"other format", "{\n\"format\": \"x\",\n", SHOAL_ECORRUPT, "not a checkpoint's manifest"},
        {"newer version", "{\n\"format\": \"shoal-checkpoint\",\n\"version\": 2,\n",
         SHOAL_EMISMATCH, "format version 2, this program reads 1"},
        {"no tables", HEAD JOB "\"tables\": 1,\n\"files\": [],\n", SHOAL_ECORRUPT,
         "list of tables"},
        {"no files", HEAD JOB "\"tables\": [],\n", SHOAL_ECORRUPT, "list of files"},
        {"no position", HEAD "\"config\": {},\n\"tables\": [\n" FIXED FILES, SHOAL_ECORRUPT,
         "no line for \"position\""},
        {"a shard missing",
         HEAD JOB "\"tables\": [\n" TABLE("fixed", "4", "3", "2") SHARD(0) STREAM "]}\n" FILES,
         SHOAL_ECORRUPT, "shard 1 of 2 is missing"},
        {"a shard twice",
         HEAD JOB "\"tables\": [\n" TABLE("fixed", "4", "3", "2") SHARD(0) STREAM ", " SHARD(0)
             STREAM "]}\n" FILES,
         SHOAL_ECORRUPT, "twice"},
        {"a shard too many",
         HEAD JOB "\"tables\": [\n" TABLE("fixed", "4", "3", "2") SHARD(2) STREAM "]}\n" FILES,
         SHOAL_ECORRUPT, "\"shard\""},
        {"wrong rows",
         HEAD JOB "\"tables\": [\n" TABLE("fixed", "6", "3", "2") SHARD(0) STREAM ", " SHARD(1)
             STREAM "]}\n" FILES,
         SHOAL_ECORRUPT, "\"rows\""},
        {"dense with gaps",
         HEAD JOB "\"tables\": [\n" TABLE("dense", "2", "2", "2") SHARD(0) STREAM ", " SHARD(1)
             STREAM "]}\n" FILES,
         SHOAL_ECORRUPT, "starts at element 0"},
        {"dense too small",
         HEAD JOB "\"tables\": [\n" TABLE("dense", "2", "2", "1") SHARD(0) STREAM "]}\n" FILES,
         SHOAL_ECORRUPT, "2 elements in all"},
        {"unknown kind", HEAD JOB "\"tables\": [\n" TABLE("odd", "2", "2", "1") "]}\n" FILES,
         SHOAL_ECORRUPT, "\"kind\""},
        {"no columns", HEAD JOB "\"tables\": [\n" TABLE("fixed", "2", "0", "1") "]}\n" FILES,
         SHOAL_ECORRUPT, "\"cols\""},
        {"no shards", HEAD JOB "\"tables\": [\n" TABLE("fixed", "2", "1", "0") "]}\n" FILES,
         SHOAL_ECORRUPT, "\"shards\""},
        {"too many shards",
         HEAD JOB "\"tables\": [\n" TABLE("fixed", "2", "1", "1025") "]}\n" FILES, SHOAL_ECORRUPT,
         "\"shards\""},
        {"half a row", HEAD JOB "\"tables\": [\n" TABLE("fixed", "2.5", "1", "1") "]}\n" FILES,
         SHOAL_ECORRUPT, "\"rows\""},
        {"fewer than none", HEAD JOB "\"tables\": [\n" TABLE("fixed", "-1", "1", "1") "]}\n" FILES,
         SHOAL_ECORRUPT, "\"rows\""},
        {"too large a tensor",
         HEAD JOB "\"tables\": [\n" TABLE("dense", "274877906944", "2", "1") "]}\n" FILES,
         SHOAL_ECORRUPT, "\"cols\""},
        {"a file elsewhere",
         HEAD JOB "\"tables\": [],\n\"files\": [{\"name\": \"../f\", \"bytes\": "
                  "1, \"crc32c\": \"00000000\"}],\n",
         SHOAL_ECORRUPT, "\"name\""},
        {"a short checksum",
         HEAD JOB "\"tables\": [],\n\"files\": [{\"name\": \"f\", \"bytes\": 1, "
                  "\"crc32c\": \"0000000\"}],\n",
         SHOAL_ECORRUPT, "\"crc32c\""},
        {"a key twice", HEAD HEAD, SHOAL_ECORRUPT, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *checkpoint = NULL;
        const int rc = parse(cases[i].body, &checkpoint);
        if (rc != cases[i].want || strstr(err.text, cases[i].text) == NULL) {
            test_fail(__FILE__, __LINE__, "%s: got %d \"%s\"", cases[i].name, rc, err.text);
        }
    }
    CHECK_INT(mem_bytes_total(), 0);
}

/* Fuzzing starts from manifests that are read. */
TEST(seeds_are_valid)
{
    static const char *const seeds[] = {"empty", "small"};
    for (size_t i = 0; i < 2; i++) {
        char path[64];
        char *body = NULL;
        size_t count = 0;
        struct checkpoint *checkpoint = NULL;
        snprintf(path, sizeof path, "fuzz/checkpoint_manifest/%s", seeds[i]);
        CHECK_OK(io_read_whole(test_path(path), 65536, &body, &count, &err));
        CHECK_OK(parse(body, &checkpoint));
        checkpoint_close(checkpoint);
        mem_free(body);
    }
}

TEST(tensor_names)
{
    static const struct {
        const char *table, *part;
        uint32_t shard, shards;
        const char *want;
    } cases[] = {
        {"hidden/0/weight", "", 0, 1, "hidden/0/weight"},
        {"user_id/embedding", "adagrad", 0, 1, "user_id/embedding/adagrad"},
        {"user_id/embedding", "", 3, 16, "user_id/embedding.3-of-16"},
        {"user_id/embedding", "keys", 3, 16, "user_id/keys.3-of-16"},
        {"mine", "keys", 0, 1, "mine/keys"},
        {"/embedding", "keys", 0, 1, "/embedding/keys"},
    };
    struct str name = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        checkpoint_tensor_name(&name, cases[i].table, cases[i].part, cases[i].shard,
                               cases[i].shards);
        CHECK_STR(name.text, cases[i].want);
    }
    str_fini(&name);
}

TEST(rows_of_a_fixed_tables_shards_add_up)
{
    for (uint64_t rows = 0; rows < 40; rows++) {
        for (uint32_t shards = 1; shards < 10; shards++) {
            uint64_t sum = 0;
            for (uint32_t s = 0; s < shards; s++) sum += checkpoint_fixed_rows(rows, s, shards);
            CHECK_INT(sum, rows);
        }
    }
    CHECK_INT(checkpoint_fixed_rows(10, 0, 4), 3);
    CHECK_INT(checkpoint_fixed_rows(10, 2, 4), 2);
}
