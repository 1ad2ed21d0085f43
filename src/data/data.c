#include "data/data.h"

#include <jansson.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/data_batcher.h"
#include "data/data_frame.h"
#include "data/data_reader.h"
#include "io/file.h"

/* Without shuffling a lease is only a piece of work for the reader: enough records to make its
 * hand-over cheap. */
enum { WINDOW_RECORDS_MIN = 4096 };
/* The share of broken records means little before so many. */
enum { JUDGED_RECORDS_MIN = 1000 };
/* Records that are looked at for the names of features. */
enum { NAMES_RECORDS = 50 };

struct data {
    struct data_settings settings;
    bool eval;
    bool standard_input;
    uint32_t batch_size;
    char **paths; /* of this share */
    uint32_t paths_count;
    char *header;         /* csv: of the first file */
    uint64_t fingerprint; /* of all that a position depends on */
    struct data_layout layout;
    struct data_batcher *batcher;
    struct data_reader_opts reader_opts;
    struct data_reader *reader;

    struct data_window *window; /* the one that the next batch comes from; NULL: not yet there */
    struct data_lease lease;    /* of that window */
    uint32_t batch_next;        /* of the lease */
    uint32_t batch_first;       /* to start with, from a position */
    bool ended;
    int failed; /* what data_next goes on to answer */
    struct err failure;

    struct data_stats stats;
    uint64_t bytes_all; /* of all epochs; 0: without end, compressed, or standard input */
    uint64_t seen;      /* records and broken frames that came from the reader */
    uint32_t reports_count;
    struct data_report first_report;
};

/* ---- open ---- */

static int add_path(struct data *data, size_t *capacity, const char *path, struct err *err)
{
    if (data->paths_count == DATA_FILES_MAX) {
        return err_set(err, SHOAL_ELIMIT, "more than %u data files", DATA_FILES_MAX);
    }
    if (mem_grow(MEM_DATA, (void **)&data->paths, capacity, data->paths_count + 1u,
                 sizeof *data->paths) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for the list of files");
    }
    data->paths[data->paths_count] = mem_strdup(MEM_DATA, path);
    if (data->paths[data->paths_count] == NULL) {
        return err_set(err, SHOAL_ENOMEM, "no memory for the list of files");
    }
    data->paths_count++;
    return 0;
}

/* idx: a glob for images may match their labels too; those are found by themselves. */
static bool is_label_file(const char *path)
{
    const char *base = strrchr(path, '/');
    base = base != NULL ? base + 1 : path;
    return strstr(base, "labels") != NULL && strstr(base, "idx1") != NULL;
}

static int list_files(struct data *data, const struct data_patterns *patterns, struct err *err)
{
    size_t capacity = 0;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < patterns->count; i++) {
        struct io_list list = {0};
        if (strcmp(patterns->globs[i], "-") == 0) {
            data->standard_input = true;
            rc = add_path(data, &capacity, "-", err);
            continue;
        }
        rc = io_glob(patterns->globs[i], &list, err);
        for (size_t j = 0; rc == 0 && j < list.count; j++) {
            if (!is_label_file(list.paths[j])) rc = add_path(data, &capacity, list.paths[j], err);
        }
        io_list_fini(&list);
    }
    if (rc == SHOAL_ENOENT && data->settings.make != NULL) {
        char text[ERR_TEXT_MAX];
        memcpy(text, err != NULL ? err->text : "", err != NULL ? sizeof text : 1);
        rc = err_set(err, rc, "%.240s; make the data with: %.240s", text, data->settings.make);
    }
    if (rc == 0 && data->paths_count == 0) {
        rc = err_set(err, SHOAL_ENOENT, "the job names no files in data.%s",
                     data->eval ? "eval" : "train");
    }
    if (rc == 0 && data->standard_input && data->paths_count > 1) {
        rc = err_set(err, SHOAL_ECONFIG, "standard input cannot be mixed with files");
    }
    return rc;
}

/* Keeps the files of this worker: index, index + count, ... of the sorted list. */
static int keep_share(struct data *data, uint32_t index, uint32_t count, struct err *err)
{
    uint32_t kept = 0;
    if (count <= 1) return 0;
    if (index >= count || index >= data->paths_count) {
        return err_set(err, SHOAL_EINVAL,
                       "%u data files cannot be shared by %u workers: worker %u would have none; "
                       "make more files or use fewer workers",
                       data->paths_count, count, index);
    }
    for (uint32_t i = 0; i < data->paths_count; i++) {
        if (i % count == index) {
            data->paths[kept++] = data->paths[i];
        } else {
            mem_free(data->paths[i]);
        }
    }
    data->paths_count = kept;
    return 0;
}

static int find_format(const struct data *data, enum data_format *format_out, struct err *err)
{
    const uint8_t *bytes = NULL;
    size_t have = 0;
    struct stream *stream = NULL;
    *format_out = data->settings.format;
    if (*format_out != DATA_AUTO) return 0;
    if (data->standard_input) {
        return err_set(err, SHOAL_ECONFIG,
                       "standard input: say data.format (tfrecord, csv, tsv or "
                       "libsvm)");
    }
    int rc = stream_open(data->paths[0], 0, &stream, err);
    if (rc != 0) return rc;
    rc = stream_peek(stream, 4096, &bytes, &have, err);
    if (rc == SHOAL_ECORRUPT) rc = 0;
    if (rc == 0) *format_out = data_frame_guess(data->paths[0], bytes, have < 4096 ? have : 4096);
    stream_close(stream);
    return rc;
}

/* Looks at the first file: format and header. Standard input stays open for the reader. */
static int look_at_first(struct data *data, const struct data_opts *opts,
                         struct data_frame **first_out, struct err *err)
{
    struct data_frame_opts *frame_opts = &data->reader_opts.frame;
    struct data_frame *frame = NULL;
    int rc = find_format(data, &frame_opts->format, err);
    if (rc != 0) return rc;
    const bool csv = frame_opts->format == DATA_CSV || frame_opts->format == DATA_TSV;
    if (data->standard_input && frame_opts->format == DATA_IDX) {
        return err_set(err, SHOAL_ECONFIG, "idx files cannot come from standard input");
    }
    frame_opts->header = csv && data->settings.header;
    frame_opts->delimiter = data->settings.delimiter != 0    ? data->settings.delimiter
                            : frame_opts->format == DATA_TSV ? '\t'
                                                             : ',';
    frame_opts->rows = data->eval ? data->settings.eval_rows : data->settings.train_rows;
    frame_opts->labels_optional = opts->label_optional || !data_spec_schema(opts->spec)->has_label;
    if (data->standard_input || frame_opts->header) {
        rc = data_frame_open(data->paths[0], frame_opts, 0, 0, &frame, err);
        if (rc != 0) return rc;
    }
    if (frame_opts->header) {
        const char *header = data_frame_header(frame);
        if (header == NULL) {
            rc =
                err_set(err, SHOAL_ECORRUPT, "%s: empty, where a header should be", data->paths[0]);
        } else if ((data->header = mem_strdup(MEM_DATA, header)) == NULL) {
            rc = err_set(err, SHOAL_ENOMEM, "no memory for a header");
        }
        frame_opts->header_text = data->header;
    }
    if (rc != 0 || !data->standard_input) {
        data_frame_close(frame);
        return rc;
    }
    *first_out = frame;
    return 0;
}

/* What the sequence of batches depends on, in one number. */
static uint64_t fingerprint(const struct data *data, uint64_t seed)
{
    const struct data_reader_opts *r = &data->reader_opts;
    const uint64_t numbers[] = {
        seed,       data->batch_size,    r->window_records,  r->interleave,
        r->shuffle, r->frame.rows.first, r->frame.rows.last, data->paths_count};
    uint64_t print = hash_fingerprint64(numbers, sizeof numbers);
    for (uint32_t i = 0; i < data->paths_count; i++) {
        const char *base = strrchr(data->paths[i], '/');
        base = base != NULL ? base + 1 : data->paths[i];
        print = hash_fingerprint_cat64(print, hash_fingerprint64(base, strlen(base)));
    }
    return print;
}

static void plan_reader(struct data *data, uint64_t seed)
{
    struct data_reader_opts *r = &data->reader_opts;
    const uint32_t shuffle = data->eval ? 0 : data->settings.shuffle;
    const uint32_t wanted = shuffle > 0 ? shuffle : WINDOW_RECORDS_MIN;
    r->paths = (const char *const *)data->paths;
    r->paths_count = data->paths_count;
    r->window_records = (wanted + data->batch_size - 1) / data->batch_size * data->batch_size;
    r->interleave = data->settings.interleave != 0 ? data->settings.interleave : 8;
    r->shuffle = shuffle > 0;
    r->seed = seed;
    r->epochs = data->eval ? 1 : data->settings.epochs;
}

/* ---- position ---- */

int data_position_write(const struct data *data, struct str *json, struct err *err)
{
    if (data->standard_input) {
        return err_set(err, SHOAL_EINVAL, "standard input cannot be resumed");
    }
    const struct data_lease *lease = &data->lease;
    char print[24];
    snprintf(print, sizeof print, "%016llx", (unsigned long long)data->fingerprint);
    str_json_open(json, '{');
    str_json_key(json, "epoch");
    str_json_u64(json, lease->epoch);
    str_json_key(json, "lease");
    str_json_u64(json, lease->number);
    str_json_key(json, "batch");
    str_json_u64(json, data->batch_next);
    str_json_key(json, "files_next");
    str_json_u64(json, lease->files_next);
    str_json_key(json, "files");
    str_json_open(json, '[');
    for (uint32_t i = 0; i < lease->places_count; i++) {
        str_json_open(json, '[');
        str_json_u64(json, lease->places[i].file);
        str_json_u64(json, lease->places[i].offset);
        str_json_u64(json, lease->places[i].number);
        str_json_close(json, ']');
    }
    str_json_close(json, ']');
    str_json_key(json, "of");
    str_json_string(json, print, strlen(print));
    str_json_close(json, '}');
    return json->failed ? err_set(err, SHOAL_ENOMEM, "no memory for a position") : 0;
}

static bool read_u64(json_t *object, const char *key, uint64_t max, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return *out <= max;
}

static bool read_place(json_t *list, size_t i, uint32_t paths_count, struct data_place *place)
{
    json_t *entry = json_array_get(list, i);
    if (!json_is_array(entry) || json_array_size(entry) != 3) return false;
    uint64_t numbers[3] = {0};
    for (size_t j = 0; j < 3; j++) {
        const json_t *number = json_array_get(entry, j);
        if (!json_is_integer(number) || json_integer_value(number) < 0) return false;
        numbers[j] = (uint64_t)json_integer_value(number);
    }
    *place = (struct data_place){
        .file = (uint32_t)numbers[0], .offset = numbers[1], .number = numbers[2]};
    return numbers[0] < paths_count;
}

static int read_position(struct data *data, const char *text, struct err *err)
{
    struct data_lease lease = {0};
    json_error_t where;
    uint64_t files_next = 0;
    uint64_t batch = 0;
    char print[24];
    json_t *json = json_loads(text, 0, &where);
    json_t *files = json_object_get(json, "files");
    const char *of = json_string_value(json_object_get(json, "of"));
    bool ok = json != NULL && of != NULL && json_is_array(files);
    ok = ok && read_u64(json, "epoch", UINT32_MAX, &lease.epoch) &&
         read_u64(json, "lease", UINT32_MAX - 1, &lease.number) &&
         read_u64(json, "batch", UINT32_MAX, &batch) &&
         read_u64(json, "files_next", DATA_FILES_MAX, &files_next);
    snprintf(print, sizeof print, "%016llx", (unsigned long long)data->fingerprint);
    int rc = 0;
    if (!ok) {
        rc = err_set(err, SHOAL_ECORRUPT, "not a data position: %.100s", text);
    } else if (strcmp(of, print) != 0) {
        rc = err_set(err, SHOAL_EMISMATCH,
                     "the saved data position is of other files or settings (the list of files, "
                     "batch_size, shuffle, rows or seed changed)");
    }
    const size_t count = json_array_size(files);
    if (rc == 0 && (count > data->reader_opts.interleave || files_next > data->paths_count)) {
        rc = err_set(err, SHOAL_ECORRUPT, "a data position with %zu open files", count);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (!read_place(files, i, data->paths_count, &lease.places[i])) {
            rc = err_set(err, SHOAL_ECORRUPT, "not a data position: %.100s", text);
        }
    }
    lease.places_count = (uint32_t)count;
    lease.files_next = (uint32_t)files_next;
    if (rc == 0) {
        data->lease = lease;
        data->batch_next = (uint32_t)batch;
        data->batch_first = (uint32_t)batch;
    }
    json_decref(json);
    return rc;
}

/* ---- create ---- */

static int check_opts(const struct data_opts *opts, uint32_t batch_size, struct err *err)
{
    ASSERT(opts->spec != NULL);
    if (batch_size > DATA_BATCH_MAX || opts->settings.shuffle > DATA_SHUFFLE_MAX ||
        opts->settings.interleave > DATA_INTERLEAVE_MAX) {
        return err_set(err, SHOAL_ELIMIT, "batch_size %u, shuffle %u or interleave %u is too large",
                       batch_size, opts->settings.shuffle, opts->settings.interleave);
    }
    return 0;
}

static uint64_t bytes_of_all(const struct data *data)
{
    uint64_t sum = 0;
    if (data->standard_input) return 0;
    for (uint32_t i = 0; i < data->paths_count; i++) {
        const char *dot = strrchr(data->paths[i], '.');
        uint64_t bytes = 0;
        if (dot != NULL && (strcmp(dot, ".gz") == 0 || strcmp(dot, ".zst") == 0)) return 0;
        if (io_size(data->paths[i], &bytes, NULL) != 0) return 0;
        sum += bytes;
    }
    return sum * data->reader_opts.epochs;
}

int data_open(const struct data_opts *opts, struct data **data_out, struct err *err)
{
    struct data_frame *first = NULL;
    struct data *data = mem_alloc(MEM_DATA, sizeof *data);
    if (data == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a data set");
    data->settings = opts->settings;
    data->eval = opts->eval;
    data->batch_size = opts->batch_size != 0            ? opts->batch_size
                       : opts->settings.batch_size != 0 ? opts->settings.batch_size
                                                        : 512;
    int rc = check_opts(opts, data->batch_size, err);
    if (rc == 0)
        rc = list_files(data, opts->eval ? &opts->settings.eval : &opts->settings.train, err);
    if (rc == 0) rc = keep_share(data, opts->share_index, opts->share_count, err);
    if (rc == 0) {
        plan_reader(data, opts->seed);
        rc = look_at_first(data, opts, &first, err);
    }
    if (rc == 0) {
        data->fingerprint = fingerprint(data, opts->seed);
        rc = data_layout_init(&data->layout, opts->spec, &data->settings,
                              data->reader_opts.frame.format, data->header, err);
        if (rc != 0) err_wrap(err, "%s", data->paths[0]);
    }
    if (rc == 0) {
        rc =
            data_batcher_create(&(struct data_batcher_opts){.spec = opts->spec,
                                                            .layout = &data->layout,
                                                            .rows_max = data->batch_size,
                                                            .label_optional = opts->label_optional},
                                &data->batcher, err);
    }
    if (rc == 0 && opts->position != NULL) rc = read_position(data, opts->position, err);
    if (rc == 0) {
        data->reader_opts.first = first;
        rc = data_reader_start(&data->reader_opts, &data->lease, &data->reader, err);
        if (rc == 0) first = NULL;
        data->reader_opts.first = NULL;
    }
    data_frame_close(first);
    if (rc != 0) {
        data_close(data);
        return rc;
    }
    data->stats.files = data->paths_count;
    data->bytes_all = bytes_of_all(data);
    *data_out = data;
    return 0;
}

/* ---- broken records ---- */

static void note_broken(struct data *data, const struct data_report *report)
{
    if (data->reports_count == 0) data->first_report = *report;
    if (data->reports_count++ >= DATA_REPORTS_MAX) return;
    log_line(LOG_WARN, "data", "skipped a record: %s file=%s offset=%llu reason=%s", report->text,
             data->paths[report->file], (unsigned long long)report->offset,
             data_fault_name(report->fault));
}

static void count_broken(struct data *data, enum data_fault fault, uint64_t count)
{
    data->stats.skipped += count;
    data->stats.skipped_by[fault] += count;
}

static int judge(struct data *data, bool at_end, struct err *err)
{
    const struct data_stats *s = &data->stats;
    const double total = (double)data->seen;
    if (s->skipped == 0 || (!at_end && total < JUDGED_RECORDS_MIN)) return 0;
    if ((double)s->skipped <= data->settings.errors_max * total) return 0;
    const struct data_report *first = &data->first_report;
    return err_set(err, SHOAL_ECORRUPT,
                   "%llu of %.0f records are broken, %.2f %%, more than data.errors_max (%.2f %%); "
                   "the first: %.200s, byte %llu: %s",
                   (unsigned long long)s->skipped, total, 100.0 * (double)s->skipped / total,
                   100.0 * data->settings.errors_max, data->paths[first->file],
                   (unsigned long long)first->offset, first->text);
}

/* ---- names that are not there ---- */

struct names {
    const struct data_spec *spec;
    bool *seen;        /* by field */
    struct str others; /* names that no feature asks for, of one record */
    bool first;
};

static bool note_name(void *ctx, const struct data_example_field *found)
{
    struct names *names = ctx;
    for (uint32_t i = 0; i < names->spec->fields_count; i++) {
        const struct data_field *field = &names->spec->fields[i];
        if (field->name_bytes == found->name_bytes &&
            memcmp(field->name, found->name, found->name_bytes) == 0) {
            names->seen[i] = true;
            return true;
        }
    }
    if (names->first && names->others.bytes < 200) {
        if (names->others.bytes > 0) str_add(&names->others, ", ");
        str_add_bytes(&names->others, found->name, found->name_bytes);
    }
    return true;
}

/* A feature whose name none of the first records has would silently be its default everywhere: most
 * likely the name is wrong. */
static int warn_of_absent_names(const struct data *data, struct err *err)
{
    const struct data_spec *spec = data->layout.spec;
    const struct data_window *window = data->window;
    if (data->layout.format != DATA_TFRECORD || window == NULL || window->count < NAMES_RECORDS) {
        return 0;
    }
    struct names names = {.spec = spec};
    names.seen = mem_alloc_array(MEM_DATA, spec->fields_count, sizeof *names.seen);
    if (names.seen == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for names");
    for (uint32_t i = 0; i < NAMES_RECORDS; i++) {
        names.first = i == 0;
        data_example_walk(window->pieces[i].bytes, window->pieces[i].count, note_name, &names);
    }
    for (uint32_t i = 0; i < spec->fields_count; i++) {
        if (names.seen[i]) continue;
        log_line(LOG_WARN, "data",
                 "no record has the feature %s, its default is taken; is the name right? "
                 "names that no feature uses: %s file=%s",
                 spec->fields[i].name, names.others.bytes > 0 ? names.others.text : "none",
                 data->paths[window->pieces[0].file]);
    }
    const bool failed = names.others.failed;
    mem_free(names.seen);
    str_fini(&names.others);
    return failed ? err_set(err, SHOAL_ENOMEM, "no memory for names") : 0;
}

/* ---- batches ---- */

/* Takes what the reader found out into account. */
static int arrive(struct data *data, struct data_window *window, struct err *err)
{
    for (uint32_t i = 0; i < window->reports_count; i++) note_broken(data, &window->reports[i]);
    data->seen += window->count;
    for (int i = 0; i < DATA_FAULT_COUNT; i++) {
        count_broken(data, (enum data_fault)i, window->skipped[i]);
        data->seen += window->skipped[i];
    }
    data->stats.bytes += window->bytes;
    if (window->rc != 0) return err_set(err, window->rc, "%s", window->err.text);
    return 0;
}

static uint32_t batches_of(const struct data *data, const struct data_window *window)
{
    return (window->count + data->batch_size - 1) / data->batch_size;
}

/* Makes data->window one that has a batch left, or data->ended. *epoch_end_out: an epoch ended on the
 * way. */
static int find_window(struct data *data, bool *epoch_end_out, struct err *err)
{
    *epoch_end_out = false;
    while (!data->ended) {
        struct data_window *window = data->window;
        if (window != NULL && data->batch_next < batches_of(data, window)) return 0;
        if (window != NULL) {
            const bool epoch_last = window->epoch_last;
            *epoch_end_out = *epoch_end_out || epoch_last;
            data_reader_release(data->reader, window);
            data->window = NULL;
            data->batch_next = 0;
            const int rc = epoch_last ? judge(data, true, err) : 0;
            if (rc != 0) return rc;
        }
        const uint64_t before = clock_now_ns();
        window = data_reader_acquire(data->reader);
        data->stats.wait_ns += clock_now_ns() - before;
        data->window = window;
        data->lease = window->lease;
        data->ended = window->ended;
        data->batch_next = data->batch_first;
        data->batch_first = 0;
        const int rc = arrive(data, window, err);
        if (rc != 0) return rc;
    }
    return 0;
}

static int decode(struct data *data, struct team *team, const struct batch **batch_out,
                  struct err *err)
{
    const struct data_window *window = data->window;
    const uint32_t first = data->batch_next * data->batch_size;
    const uint32_t left = window->count - first;
    const uint32_t count = left < data->batch_size ? left : data->batch_size;
    const struct data_broken *broken = NULL;
    uint32_t broken_count = 0;
    const bool ordered = window->order == NULL || !data->reader_opts.shuffle;
    const int rc = data_batcher_make(
        data->batcher, team, ordered ? window->pieces + first : window->pieces,
        ordered ? NULL : window->order + first, count, batch_out, &broken, &broken_count, err);
    if (rc != 0) return rc;
    data->batch_next++;
    data->stats.records += count - broken_count;
    for (uint32_t i = 0; i < broken_count; i++) {
        const struct data_piece *piece = &window->pieces[broken[i].index + (ordered ? first : 0)];
        struct data_report report = {
            .file = piece->file, .offset = piece->offset, .fault = broken[i].fault};
        snprintf(report.text, sizeof report.text, "%s", data_fault_text(broken[i].fault));
        count_broken(data, broken[i].fault, 1);
        note_broken(data, &report);
    }
    return judge(data, false, err);
}

static int next(struct data *data, struct team *team, const struct batch **batch_out,
                struct data_info *info, struct err *err)
{
    bool epoch_end = false;
    int rc = 0;
    if (data->window == NULL) {
        rc = find_window(data, &epoch_end, err);
        if (rc == 0 && !data->ended) rc = warn_of_absent_names(data, err);
    }
    do {
        if (rc != 0) return rc;
        if (data->ended) return err_set(err, SHOAL_END, "end of data");
        *info = (struct data_info){
            .epoch = data->lease.epoch, .lease = data->lease.number, .batch = data->batch_next};
        rc = decode(data, team, batch_out, err);
        /* Looking on at once tells whether this was the epoch's last, and where the next will come
         * from. The batch has its own arrays by now. */
        if (rc == 0) rc = find_window(data, &epoch_end, err);
        info->epoch_end = epoch_end;
    } while (rc == 0 && (*batch_out)->rows == 0);
    return rc;
}

int data_next(struct data *data, struct team *team, const struct batch **batch_out,
              struct data_info *info_out, struct err *err)
{
    struct data_info info = {0};
    struct err failure = {0};
    if (data->failed != 0) return err_set(err, data->failed, "%s", data->failure.text);
    const int rc = next(data, team, batch_out, &info, &failure);
    if (rc != 0) {
        data->failed = rc;
        data->failure = failure;
        return err_set(err, rc, "%s", failure.text);
    }
    if (info_out != NULL) *info_out = info;
    return 0;
}

int data_rewind(struct data *data, struct err *err)
{
    if (data->standard_input) {
        return err_set(err, SHOAL_EINVAL, "standard input can be read only once");
    }
    data_reader_stop(data->reader);
    data->reader = NULL;
    data->window = NULL;
    data->lease = (struct data_lease){0};
    data->batch_next = 0;
    data->batch_first = 0;
    data->ended = false;
    data->failed = 0;
    data->stats = (struct data_stats){.files = data->paths_count};
    data->seen = 0;
    data->reports_count = 0;
    const int rc = data_reader_start(&data->reader_opts, &data->lease, &data->reader, err);
    if (rc != 0) {
        data->failed = rc;
        err_set(&data->failure, rc, "the data set could not be opened again");
    }
    return rc;
}

/* The window in use counts by its batches that are done. */
static double share_done(const struct data *data)
{
    if (data->bytes_all == 0) return 0;
    double bytes = (double)data->stats.bytes;
    const struct data_window *window = data->window;
    if (window != NULL && window->count > 0) {
        bytes -= (double)window->bytes *
                 (1 - (double)data->batch_next / (double)batches_of(data, window));
    }
    return bytes / (double)data->bytes_all;
}

void data_stats_get(const struct data *data, struct data_stats *stats_out)
{
    *stats_out = data->stats;
    stats_out->share_done = share_done(data);
    if (data->reader != NULL) stats_out->memory_bytes = data_reader_memory(data->reader);
}

void data_close(struct data *data)
{
    if (data == NULL) return;
    data_reader_stop(data->reader);
    data_batcher_destroy(data->batcher);
    data_layout_fini(&data->layout);
    for (uint32_t i = 0; i < data->paths_count; i++) mem_free(data->paths[i]);
    mem_free(data->paths);
    mem_free(data->header);
    mem_free(data);
}
