#include "data/data.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/data_test_help.h"
#include "data/data_tools.h"

static const char din[] =
    "label: {kind: label}\n"
    "user_id: {kind: hash, buckets: 10000}\n"
    "age: {kind: bucketize, boundaries: [18, 25, 36, 45, 55, 65, 80]}\n"
    "gender: {kind: hash, buckets: 100}\n"
    "item_id: {kind: dynamic, embed: 16, table: item}\n"
    "clicked_items_15d: {kind: dynamic, sequence: true, pad: \"0\", table: item}\n";

/* Five files of generated clicks with different numbers of rows. */
static void make_files(enum data_compress compress)
{
    const struct data_gen_opts opts = {.out = "clicks",
                                       .rows = 1237,
                                       .eval_rows = 100,
                                       .files = 5,
                                       .compress = compress,
                                       .seed = 3};
    struct data_gen_result result;
    CHECK_OK(data_gen(&opts, NULL, &result, &err));
}

/* All batches until the end, each as text with its info and the position after it. */
struct sequence {
    struct str *batches;
    struct str *positions;
    uint32_t count;
};

static void read_all(const struct data_opts *opts, struct team *team, struct sequence *sequence)
{
    struct data *data = NULL;
    const struct batch *batch = NULL;
    struct data_info info;
    int rc = 0;
    *sequence = (struct sequence){.batches = calloc(400, sizeof(struct str)),
                                  .positions = calloc(400, sizeof(struct str))};
    CHECK_OK(data_open(opts, &data, &err));
    while ((rc = data_next(data, team, &batch, &info, &err)) == 0) {
        CHECK(sequence->count < 400);
        struct str *text = &sequence->batches[sequence->count];
        str_printf(text, "epoch %llu lease %llu batch %u end %d ", (unsigned long long)info.epoch,
                   (unsigned long long)info.lease, info.batch, info.epoch_end);
        help_print(batch, text);
        CHECK_OK(data_position_write(data, &sequence->positions[sequence->count++], &err));
    }
    if (rc != SHOAL_END) CHECK_OK(rc);
    CHECK_INT(data_next(data, team, &batch, &info, &err), SHOAL_END); /* and so it stays */
    data_close(data);
}

static void free_sequence(struct sequence *sequence)
{
    for (uint32_t i = 0; i < sequence->count; i++) {
        str_fini(&sequence->batches[i]);
        str_fini(&sequence->positions[i]);
    }
    free(sequence->batches);
    free(sequence->positions);
}

static void check_same(const struct sequence *got, const struct sequence *want, uint32_t from)
{
    CHECK_INT(got->count, want->count - from);
    for (uint32_t i = 0; i < got->count; i++) {
        CHECK_STR(got->batches[i].text, want->batches[from + i].text);
        CHECK_STR(got->positions[i].text, want->positions[from + i].text);
    }
}

TEST(golden_din_file_gives_its_batches)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, test_path("golden/din/data.tfrecord"), 32, 0);
    struct sequence plain, packed;
    read_all(&opts, NULL, &plain);
    CHECK_INT(plain.count, 40);
    CHECK_HAS(plain.batches[39].text, "end 1 rows 32");
    CHECK_HAS(plain.batches[38].text, "end 0 rows 32");
    opts.settings.train.globs[0] = test_path("golden/din/data.tfrecord.gz");
    read_all(&opts, NULL, &packed);
    for (uint32_t i = 0; i < 40; i++) CHECK_STR(packed.batches[i].text, plain.batches[i].text);
    free_sequence(&plain);
    free_sequence(&packed);
    data_spec_destroy(spec);
}

/* Two epochs, shuffled: the batches are the same on any team, every record comes once an epoch, the
 * epochs differ. */
TEST(batches_are_the_same_on_any_team)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, "clicks/train-*", 32, 300);
    struct sequence want, got;
    make_files(DATA_PLAIN);
    opts.settings.epochs = 2;
    read_all(&opts, NULL, &want);
    /* Leases of 320: 3 whole ones and one of 277, so 30 + 9 batches an epoch. */
    CHECK_INT(want.count, 78);
    CHECK_HAS(want.batches[38].text, "epoch 0 lease 3 batch 8 end 1 rows 21");
    CHECK_HAS(want.batches[39].text, "epoch 1 lease 0 batch 0 end 0 rows 32");
    CHECK(strcmp(strstr(want.batches[0].text, "rows"), strstr(want.batches[39].text, "rows")) != 0);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct team *team = NULL;
        CHECK_OK(team_create(threads, &team, &err));
        read_all(&opts, team, &got);
        check_same(&got, &want, 0);
        free_sequence(&got);
        team_destroy(team);
    }
    free_sequence(&want);
    data_spec_destroy(spec);
}

/* From the position after any batch, what follows is what followed. */
static void check_resume(enum data_compress compress, uint32_t shuffle)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, "clicks/train-*", 64, shuffle);
    struct sequence want, got;
    make_files(compress);
    opts.settings.epochs = 2;
    read_all(&opts, NULL, &want);
    CHECK(want.count >= 40);
    for (uint32_t i = 0; i < want.count; i++) {
        opts.position = want.positions[i].text;
        read_all(&opts, NULL, &got);
        check_same(&got, &want, i + 1);
        free_sequence(&got);
    }
    free_sequence(&want);
    data_spec_destroy(spec);
}

TEST(resuming_goes_on_exactly)
{
    check_resume(DATA_PLAIN, 200);
}

TEST(resuming_compressed_files_goes_on_exactly)
{
    check_resume(DATA_GZIP, 200);
    check_resume(DATA_ZSTD, 200);
}

TEST(resuming_without_shuffle_goes_on_exactly)
{
    check_resume(DATA_PLAIN, 0);
}

TEST(a_position_of_other_data_is_refused)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, "clicks/train-*", 64, 200);
    struct sequence sequence;
    struct data *data = NULL;
    make_files(DATA_PLAIN);
    read_all(&opts, NULL, &sequence);
    opts.position = sequence.positions[3].text;
    opts.seed = 8;
    CHECK_INT(data_open(&opts, &data, &err), SHOAL_EMISMATCH);
    opts.seed = 7;
    opts.settings.train.globs[0] = "clicks/eval-*";
    CHECK_INT(data_open(&opts, &data, &err), SHOAL_EMISMATCH);
    static const char *const broken[] = {"", "{}", "[1]", "{\"epoch\": -1}", "{\"epoch\": 1"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        opts.position = broken[i];
        CHECK_INT(data_open(&opts, &data, &err), SHOAL_ECORRUPT);
    }
    free_sequence(&sequence);
    data_spec_destroy(spec);
}

static uint64_t count_rows(const struct data_opts *opts)
{
    struct data *data = NULL;
    const struct batch *batch = NULL;
    uint64_t rows = 0;
    int rc = 0;
    CHECK_OK(data_open(opts, &data, &err));
    while ((rc = data_next(data, NULL, &batch, NULL, &err)) == 0) rows += batch->rows;
    if (rc != SHOAL_END) CHECK_OK(rc);
    data_close(data);
    return rows;
}

TEST(shares_cut_the_list_of_files)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, "clicks/train-*", 64, 200);
    struct data *data = NULL;
    uint64_t rows = 0;
    make_files(DATA_PLAIN);
    opts.share_count = 3;
    for (opts.share_index = 0; opts.share_index < 3; opts.share_index++) rows += count_rows(&opts);
    CHECK_INT(rows, 1237);
    opts.share_count = 6;
    opts.share_index = 5;
    CHECK_INT(data_open(&opts, &data, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "5 data files cannot be shared by 6");
    data_spec_destroy(spec);
}

TEST(rows_of_one_file_serve_training_and_evaluation)
{
    struct data_spec *spec = help_spec("label: {kind: label}\nx: {kind: numeric, width: 784}\n");
    struct data_opts opts = help_opts(spec, test_path("golden/mlp/images*"), 32, 100);
    opts.settings.train_rows = (struct data_rows){.first = 0, .last = 900};
    opts.settings.eval_rows = (struct data_rows){.first = 900, .last = 960};
    CHECK_INT(count_rows(&opts), 900);
    opts.eval = true;
    CHECK_INT(count_rows(&opts), 60);
    struct data *data = NULL;
    const struct batch *batch = NULL;
    CHECK_OK(data_open(&opts, &data, &err));
    CHECK_OK(data_next(data, NULL, &batch, NULL, &err));
    for (uint32_t i = 0; i < 784; i++) {
        CHECK(batch->dense[0][i] >= 0 && batch->dense[0][i] <= 1);
    }
    CHECK_OK(data_rewind(data, &err));
    uint64_t rows = 0;
    while (data_next(data, NULL, &batch, NULL, &err) == 0) rows += batch->rows;
    CHECK_INT(rows, 60);
    data_close(data);
    data_spec_destroy(spec);
}

/* Broken records are counted by reason; the files around them are read on. */
TEST(damage_is_counted_and_passed_over)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, test_path("golden/broken/*.tfrecord"), 64, 100);
    struct data *data = NULL;
    const struct batch *batch = NULL;
    struct data_stats stats;
    opts.settings.errors_max = 0.1;
    opts.settings.format = DATA_TFRECORD;
    CHECK_OK(data_open(&opts, &data, &err));
    while (data_next(data, NULL, &batch, NULL, &err) == 0) continue;
    data_stats_get(data, &stats);
    CHECK_INT(stats.records, 100 + 100 + 199 + 100);
    CHECK_INT(stats.skipped, 5);
    CHECK_INT(stats.skipped_by[DATA_FAULT_TRUNCATED], 2);
    CHECK_INT(stats.skipped_by[DATA_FAULT_LENGTH_CRC], 2);
    CHECK_INT(stats.skipped_by[DATA_FAULT_PAYLOAD_CRC], 1);
    CHECK_INT(stats.files, 6);
    data_close(data);
    data_spec_destroy(spec);
}

static int read_lines(uint32_t good, uint32_t bad, double errors_max)
{
    struct str text = {0};
    struct data_spec *spec = help_spec("label: {kind: label}\nx: {kind: numeric}\n");
    struct data_opts opts = help_opts(spec, "lines.csv", 64, 0);
    struct data *data = NULL;
    const struct batch *batch = NULL;
    for (uint32_t i = 0; i < good + bad; i++) str_add(&text, i < bad ? "1,oops\n" : "1,2\n");
    help_write(opts.settings.train.globs[0], text.text, text.bytes);
    opts.settings.errors_max = errors_max;
    CHECK_OK(data_open(&opts, &data, &err));
    int rc = 0;
    while (rc == 0) rc = data_next(data, NULL, &batch, NULL, &err);
    struct err again = {0};
    CHECK_INT(data_next(data, NULL, &batch, NULL, &again), rc);
    CHECK_STR(again.text, err.text);
    data_close(data);
    data_spec_destroy(spec);
    str_fini(&text);
    return rc;
}

/* The edge: 1 % broken is fine, more is not; all broken is told at the end. */
TEST(too_much_damage_stops_the_job)
{
    CHECK_INT(read_lines(1980, 20, 0.01), SHOAL_END);
    CHECK_INT(read_lines(1979, 21, 0.01), SHOAL_ECORRUPT);
    CHECK_HAS(err.text,
              "21 of 2000 records are broken, 1.05 %, more than data.errors_max (1.00 %)");
    CHECK_HAS(err.text, "lines.csv, byte 0");
    CHECK_INT(read_lines(0, 70, 0.01), SHOAL_ECORRUPT);
    CHECK_INT(read_lines(0, 70, 1), SHOAL_END);
    CHECK_INT(read_lines(2, 1, 0), SHOAL_ECORRUPT);
}

TEST(headers_must_agree)
{
    struct data_spec *spec = help_spec("y: {kind: label}\nx: {kind: numeric}\n");
    struct data_opts opts = help_opts(spec, "*.csv", 10, 0);
    struct data *data = NULL;
    const struct batch *batch = NULL;
    help_write_text("a.csv", "x,y\n1,2\n");
    help_write_text("b.csv", "y,x\n1,2\n");
    help_write_text("c.csv", "x,y\n3,4\n");
    opts.settings.header = true;
    opts.settings.errors_max = 1;
    CHECK_OK(data_open(&opts, &data, &err));
    CHECK_OK(data_next(data, NULL, &batch, NULL, &err));
    CHECK_INT(batch->rows, 2);
    CHECK_NEAR(batch->label[1], 4, 0);
    struct data_stats stats;
    data_stats_get(data, &stats);
    CHECK_INT(stats.skipped_by[DATA_FAULT_HEADER], 1);
    data_close(data);
    help_write_text("a.csv", "x,z\n1,2\n");
    CHECK_INT(data_open(&opts, &data, &err), SHOAL_EMISMATCH);
    CHECK_HAS(err.text, "a.csv: the header has no column named y");
    data_spec_destroy(spec);
}

/* A wrong name is told, with the names that the file has instead. */
TEST(a_name_that_no_record_has_is_told)
{
    struct data_spec *spec =
        help_spec("label: {kind: label}\nclicked: {kind: hash, buckets: 9, sequence: true}\n");
    struct data_opts opts = help_opts(spec, "clicks/train-*", 64, 0);
    make_files(DATA_PLAIN);
    char *text = NULL;
    size_t bytes = 0;
    const int log = open("log", O_RDWR | O_CREAT, 0600);
    CHECK(log >= 0);
    log_set_file(log);
    CHECK_INT(count_rows(&opts), 1237);
    log_set_file(-1);
    close(log);
    CHECK_OK(io_read_whole("log", 1 << 20, &text, &bytes, &err));
    CHECK_HAS(text, "no record has the feature clicked");
    CHECK_HAS(text, "clicked_items_15d");
    CHECK(strstr(text, "feature label") == NULL);
    mem_free(text);
    data_spec_destroy(spec);
}

TEST(missing_data_says_how_to_make_it)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, "nowhere/train-*", 10, 0);
    struct data *data = NULL;
    opts.settings.make = "shoal data gen --out nowhere";
    CHECK_INT(data_open(&opts, &data, &err), SHOAL_ENOENT);
    CHECK_HAS(err.text, "nowhere/train-*");
    CHECK_HAS(err.text, "make the data with: shoal data gen --out nowhere");
    opts.settings.train.count = 0;
    CHECK_INT(data_open(&opts, &data, &err), SHOAL_ENOENT);
    data_spec_destroy(spec);
}

/* Standard input: read once, not resumed, its format said. */
TEST(standard_input_is_read_once)
{
    struct data_spec *spec = help_spec("y: {kind: label}\nx: {kind: numeric}\n");
    struct data_opts opts = help_opts(spec, "-", 2, 0);
    struct data *data = NULL;
    const struct batch *batch = NULL;
    struct str position = {0};
    help_write_text("in.csv", "x,y\n1,2\n3,4\n5,6\n");
    CHECK(freopen("in.csv", "r", stdin) != NULL);
    CHECK_INT(data_open(&opts, &data, &err), SHOAL_ECONFIG);
    opts.settings.format = DATA_CSV;
    opts.settings.header = true;
    CHECK_OK(data_open(&opts, &data, &err));
    CHECK_OK(data_next(data, NULL, &batch, NULL, &err));
    CHECK_NEAR(batch->label[1], 4, 0);
    CHECK_INT(data_position_write(data, &position, &err), SHOAL_EINVAL);
    CHECK_INT(data_rewind(data, &err), SHOAL_EINVAL);
    CHECK_OK(data_next(data, NULL, &batch, NULL, &err));
    CHECK_INT(batch->rows, 1);
    CHECK_INT(data_next(data, NULL, &batch, NULL, &err), SHOAL_END);
    data_close(data);
    data_spec_destroy(spec);
}

TEST(a_data_set_can_be_closed_at_any_time)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, "clicks/train-*", 32, 64);
    const struct batch *batch = NULL;
    make_files(DATA_PLAIN);
    opts.settings.epochs = 0;
    for (uint32_t batches = 0; batches < 50; batches += 7) {
        struct data *data = NULL;
        CHECK_OK(data_open(&opts, &data, &err));
        for (uint32_t i = 0; i < batches; i++) {
            CHECK_OK(data_next(data, NULL, &batch, NULL, &err));
        }
        data_close(data);
    }
    data_close(NULL);
    data_spec_destroy(spec);
    CHECK_INT(mem_bytes(MEM_DATA), 0);
}

/* Files without a single record end an endless job too. */
TEST(empty_files_are_an_end)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, "*.tfrecord", 32, 64);
    help_write_text("a.tfrecord", "");
    help_write_text("b.tfrecord", "");
    opts.settings.epochs = 0;
    CHECK_INT(count_rows(&opts), 0);
    data_spec_destroy(spec);
}

/* Whichever allocation fails, here or in the reader: an error, and nothing is left behind. */
TEST(out_of_memory_is_an_error)
{
    struct data_spec *spec = help_spec(din);
    struct data_opts opts = help_opts(spec, "clicks/train-*", 64, 200);
    make_files(DATA_PLAIN);
    const size_t before = mem_bytes(MEM_DATA);
    for (uint64_t nth = 1;; nth++) {
        struct data *data = NULL;
        const struct batch *batch = NULL;
        mem_fail_nth(nth);
        int rc = data_open(&opts, &data, &err);
        while (rc == 0) rc = data_next(data, NULL, &batch, NULL, &err);
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : SHOAL_END);
        data_close(data);
        CHECK_INT(mem_bytes(MEM_DATA), before);
        if (!failed) break;
    }
    data_spec_destroy(spec);
}

/* How much of all epochs is done grows with every batch and ends at all of it; of compressed files
 * it is not known. */
TEST(the_share_done_grows_to_one)
{
    for (int packed = 0; packed <= 1; packed++) {
        make_files(packed ? DATA_GZIP : DATA_PLAIN);
        struct data_spec *spec = help_spec(din);
        struct data *data = NULL;
        const struct batch *batch = NULL;
        struct data_stats stats;
        double before = 0;
        struct data_opts opts = {.spec = spec};
        opts.settings.format = DATA_TFRECORD;
        opts.settings.train = (struct data_patterns){.globs = {"clicks/train-*"}, .count = 1};
        opts.settings.batch_size = 50;
        opts.settings.shuffle = 200;
        opts.settings.epochs = 2;
        CHECK_OK(data_open(&opts, &data, &err));
        while (data_next(data, NULL, &batch, NULL, &err) == 0) {
            data_stats_get(data, &stats);
            CHECK(packed ? stats.share_done == 0 : stats.share_done > before);
            before = stats.share_done;
        }
        CHECK_INT(err.code, SHOAL_END);
        CHECK_NEAR(before, packed ? 0 : 1, 1e-9);
        data_close(data);
        data_spec_destroy(spec);
    }
}
