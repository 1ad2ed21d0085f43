#include "data/data_reader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/rand.h"

enum { RUN_RECORDS = 16, BLOCK_BYTES = 1 << 20 };

/* Records of a window lie in blocks that never move and are used again by later windows. */
struct block {
    uint8_t *bytes;
    size_t capacity;
};

struct slot_window {
    struct data_window window; /* first: the consumer's view */
    size_t pieces_capacity;
    size_t order_capacity;
    struct block *blocks;
    size_t blocks_capacity;
    uint32_t blocks_count;
    uint32_t block; /* being filled */
    size_t block_used;
    uint64_t memory;
};

struct open_file {
    struct data_frame *frame;
    uint32_t file;
};

struct data_reader {
    struct data_reader_opts opts; /* set at start, then read only */
    pthread_t thread;
    bool thread_runs;

    /* reader thread */
    uint64_t epoch;
    uint64_t lease_number;
    uint32_t *file_order;
    uint32_t files_next;
    struct open_file open[DATA_INTERLEAVE_MAX];
    uint32_t open_count;
    uint64_t epoch_records;
    bool done;

    struct slot_window windows[DATA_WINDOWS];

    /* Guards what follows; nothing else is taken under it. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t filled; /* windows ever made ready: the next goes to filled % DATA_WINDOWS */
    uint32_t taken;
    uint32_t released;
    uint64_t memory[DATA_WINDOWS]; /* of each window when it was last filled */
    bool ended;                    /* no further window will be filled */
    bool stop;
};

/* ---- reader thread ---- */

static uint8_t *store(struct slot_window *slot, const uint8_t *bytes, size_t count)
{
    while (slot->block < slot->blocks_count) {
        struct block *block = &slot->blocks[slot->block];
        if (block->capacity - slot->block_used >= count) {
            uint8_t *at = block->bytes + slot->block_used;
            memcpy(at, bytes, count);
            slot->block_used += count;
            return at;
        }
        slot->block++;
        slot->block_used = 0;
    }
    if (mem_grow(MEM_DATA, (void **)&slot->blocks, &slot->blocks_capacity, slot->blocks_count + 1u,
                 sizeof *slot->blocks) != 0) {
        return NULL;
    }
    const size_t capacity = count > BLOCK_BYTES ? count : BLOCK_BYTES;
    struct block block = {.bytes = mem_alloc(MEM_DATA, capacity), .capacity = capacity};
    if (block.bytes == NULL) return NULL;
    slot->blocks[slot->blocks_count++] = block;
    slot->memory += capacity;
    memcpy(block.bytes, bytes, count);
    slot->block_used = count;
    return block.bytes;
}

static int add_record(struct slot_window *slot, const struct data_record *record, uint32_t file)
{
    struct data_window *window = &slot->window;
    if (mem_grow(MEM_DATA, (void **)&window->pieces, &slot->pieces_capacity, window->count + 1u,
                 sizeof *window->pieces) != 0) {
        return err_set(&window->err, SHOAL_ENOMEM, "no memory for a window of records");
    }
    const uint8_t *bytes = store(slot, record->bytes, record->count);
    if (bytes == NULL) return err_set(&window->err, SHOAL_ENOMEM, "no memory for records");
    window->pieces[window->count++] = (struct data_piece){
        .bytes = bytes, .count = (uint32_t)record->count, .file = file, .offset = record->offset};
    return 0;
}

static void add_fault(struct data_window *window, uint32_t file, const struct data_record *record,
                      enum data_fault fault, const struct err *why)
{
    window->skipped[fault]++;
    if (window->reports_count == DATA_REPORTS_MAX) return;
    struct data_report *report = &window->reports[window->reports_count++];
    *report = (struct data_report){
        .file = file, .fault = fault, .offset = record->offset, .number = record->number};
    snprintf(report->text, sizeof report->text, "%.150s", why->text);
}

/* Opens the next file of the epoch's order into place `at`; a file that cannot be used at all counts
 * as one fault. *opened_out false: there is no further file. */
static int open_next(struct data_reader *reader, struct data_window *window, uint32_t at,
                     bool *opened_out)
{
    *opened_out = false;
    while (!*opened_out && reader->files_next < reader->opts.paths_count) {
        const uint32_t file = reader->file_order[reader->files_next++];
        struct open_file *open = &reader->open[at];
        struct err err = {0};
        int rc = 0;
        open->file = file;
        if (reader->opts.first != NULL) {
            open->frame = reader->opts.first;
            reader->opts.first = NULL;
        } else {
            rc = data_frame_open(reader->opts.paths[file], &reader->opts.frame, 0, 0, &open->frame,
                                 &err);
        }
        if (rc == SHOAL_ECORRUPT) {
            add_fault(window, file, &(struct data_record){0}, DATA_FAULT_HEADER, &err);
        } else if (rc != 0) {
            window->err = err;
            return rc;
        } else {
            *opened_out = true;
        }
    }
    return 0;
}

static void describe(const struct data_reader *reader, struct data_lease *lease)
{
    *lease = (struct data_lease){.epoch = reader->epoch,
                                 .number = reader->lease_number,
                                 .files_next = reader->files_next,
                                 .places_count = reader->open_count};
    for (uint32_t i = 0; i < reader->open_count; i++) {
        struct data_place *place = &lease->places[i];
        place->file = reader->open[i].file;
        data_frame_place(reader->open[i].frame, &place->offset, &place->number);
    }
}

/* Takes up to a run of records from one open file; *ended_out when it has no more. */
static int take_run(struct data_reader *reader, struct slot_window *slot, uint32_t at,
                    bool *ended_out)
{
    struct data_window *window = &slot->window;
    const struct open_file *open = &reader->open[at];
    const uint32_t run = reader->opts.shuffle ? RUN_RECORDS : UINT32_MAX;
    for (uint32_t i = 0; i < run && window->count < reader->opts.window_records; i++) {
        struct data_record record = {0};
        enum data_fault fault = DATA_FAULT_MALFORMED;
        struct err err;
        const int rc = data_frame_next(open->frame, &record, &fault, &err);
        if (rc == SHOAL_END) {
            *ended_out = true;
            return 0;
        }
        if (rc == SHOAL_ECORRUPT) {
            add_fault(window, open->file, &record, fault, &err);
            continue;
        }
        if (rc != 0) {
            window->err = err;
            return rc;
        }
        const int added = add_record(slot, &record, open->file);
        if (added != 0) return added;
        uint64_t offset = 0;
        uint64_t number = 0;
        data_frame_place(open->frame, &offset, &number);
        window->bytes += offset - record.offset;
    }
    return 0;
}

/* Opens files until enough are open or none is left. */
static int fill_places(struct data_reader *reader, struct data_window *window)
{
    const uint32_t wanted = reader->opts.shuffle ? reader->opts.interleave : 1;
    bool opened = true;
    int rc = 0;
    while (rc == 0 && opened && reader->open_count < wanted) {
        rc = open_next(reader, window, reader->open_count, &opened);
        if (rc == 0 && opened) reader->open_count++;
    }
    return rc;
}

/* The place of an ended file goes to the next file; without one the places close up. */
static int replace(struct data_reader *reader, struct data_window *window, uint32_t at)
{
    bool opened = false;
    data_frame_close(reader->open[at].frame);
    reader->open[at].frame = NULL;
    const int rc = open_next(reader, window, at, &opened);
    if (opened) return rc;
    reader->open_count--;
    for (uint32_t i = at; i < reader->open_count; i++) reader->open[i] = reader->open[i + 1];
    reader->open[reader->open_count].frame = NULL;
    return rc;
}

static int draw_records(struct data_reader *reader, struct slot_window *slot)
{
    struct data_window *window = &slot->window;
    int rc = fill_places(reader, window);
    uint32_t turn = 0;
    while (rc == 0 && reader->open_count > 0 && window->count < reader->opts.window_records) {
        bool ended = false;
        if (turn >= reader->open_count) turn = 0;
        rc = take_run(reader, slot, turn, &ended);
        if (rc == 0 && ended) {
            const uint32_t before = reader->open_count;
            rc = replace(reader, window, turn);
            if (reader->open_count < before) continue;
        }
        turn++;
    }
    return rc;
}

static int permute(struct data_reader *reader, struct slot_window *slot)
{
    struct data_window *window = &slot->window;
    if (!reader->opts.shuffle) return 0;
    if (mem_grow(MEM_DATA, (void **)&window->order, &slot->order_capacity, window->count + 1u,
                 sizeof *window->order) != 0) {
        return err_set(&window->err, SHOAL_ENOMEM, "no memory for a window's order");
    }
    rand_permutation(reader->opts.seed, RAND_SHUFFLE,
                     window->lease.epoch << 32 | (uint32_t)window->lease.number, window->order,
                     window->count);
    return 0;
}

static void order_files(struct data_reader *reader)
{
    const uint32_t count = reader->opts.paths_count;
    for (uint32_t i = 0; i < count; i++) reader->file_order[i] = i;
    if (!reader->opts.shuffle) return;
    /* The highest lease number, which no lease has: so that files and leases never share numbers. */
    rand_permutation(reader->opts.seed, RAND_SHUFFLE, reader->epoch << 32 | UINT32_MAX,
                     reader->file_order, count);
}

/* After a window: the next lease, or the next epoch. An epoch without a single record ends it all,
 * or a job without limit would turn in place. */
static void advance(struct data_reader *reader, struct data_window *window)
{
    reader->epoch_records += window->count;
    reader->lease_number++;
    window->epoch_last = reader->open_count == 0 && reader->files_next == reader->opts.paths_count;
    if (!window->epoch_last) return;
    reader->epoch++;
    reader->lease_number = 0;
    reader->files_next = 0;
    reader->done = reader->epoch_records == 0 ||
                   (reader->opts.epochs != 0 && reader->epoch >= reader->opts.epochs);
    reader->epoch_records = 0;
    order_files(reader);
}

static void fill(struct data_reader *reader, struct slot_window *slot)
{
    struct data_window *window = &slot->window;
    window->count = 0;
    window->epoch_last = false;
    window->rc = 0;
    window->bytes = 0;
    window->reports_count = 0;
    memset(window->skipped, 0, sizeof window->skipped);
    slot->block = 0;
    slot->block_used = 0;
    describe(reader, &window->lease);
    window->ended = reader->done;
    if (window->ended) return;
    window->rc = draw_records(reader, slot);
    if (window->rc == 0) window->rc = permute(reader, slot);
    if (window->rc == 0) {
        advance(reader, window);
    } else {
        window->ended = true;
    }
}

static uint64_t memory_of(const struct slot_window *slot)
{
    return slot->memory + slot->pieces_capacity * sizeof(struct data_piece) +
           slot->order_capacity * sizeof(uint32_t);
}

static void *reader_main(void *arg)
{
    struct data_reader *reader = arg;
    bool ended = false;
    while (!ended) {
        pthread_mutex_lock(&reader->lock);
        while (!reader->stop && reader->filled - reader->released == DATA_WINDOWS) {
            pthread_cond_wait(&reader->changed, &reader->lock);
        }
        const bool stop = reader->stop;
        struct slot_window *slot = &reader->windows[reader->filled % DATA_WINDOWS];
        pthread_mutex_unlock(&reader->lock);
        if (stop) return NULL;
        fill(reader, slot);
        ended = slot->window.ended;
        pthread_mutex_lock(&reader->lock);
        reader->memory[reader->filled % DATA_WINDOWS] = memory_of(slot);
        reader->ended = ended;
        reader->filled++;
        pthread_cond_signal(&reader->changed);
        pthread_mutex_unlock(&reader->lock);
    }
    return NULL;
}

/* ---- consumer ---- */

/* Opens the files of a lease where it says they stood. */
static int resume(struct data_reader *reader, const struct data_lease *from, struct err *err)
{
    reader->epoch = from->epoch;
    reader->lease_number = from->number;
    reader->files_next = from->files_next;
    reader->epoch_records = from->number > 0 ? 1 : 0; /* There were some before. */
    reader->done = reader->opts.epochs != 0 && reader->epoch >= reader->opts.epochs;
    order_files(reader);
    if (reader->done) return 0;
    for (uint32_t i = 0; i < from->places_count; i++) {
        const struct data_place *place = &from->places[i];
        const int rc = data_frame_open(reader->opts.paths[place->file], &reader->opts.frame,
                                       place->offset, place->number, &reader->open[i].frame, err);
        if (rc != 0) return rc;
        reader->open[i].file = place->file;
        reader->open_count++;
    }
    return 0;
}

int data_reader_start(const struct data_reader_opts *opts, const struct data_lease *from,
                      struct data_reader **reader_out, struct err *err)
{
    ASSERT(opts->window_records > 0 && opts->paths_count > 0);
    ASSERT(opts->interleave >= 1 && opts->interleave <= DATA_INTERLEAVE_MAX);
    struct data_reader *reader = mem_alloc(MEM_DATA, sizeof *reader);
    if (reader == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a reader");
    reader->opts = *opts;
    reader->opts.first = NULL;
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->changed, NULL);
    reader->file_order = mem_alloc_array(MEM_DATA, opts->paths_count, sizeof(uint32_t));
    int rc = 0;
    if (reader->file_order == NULL) rc = err_set(err, SHOAL_ENOMEM, "no memory for a reader");
    if (rc == 0) rc = resume(reader, from, err);
    if (rc == 0) {
        reader->opts.first = opts->first;
        const int failed = pthread_create(&reader->thread, NULL, reader_main, reader);
        if (failed != 0) {
            reader->opts.first = NULL;
            rc = err_set_errno(err, failed, "start the reader");
        }
        reader->thread_runs = failed == 0;
    }
    if (rc != 0) {
        data_reader_stop(reader);
        return rc;
    }
    *reader_out = reader;
    return 0;
}

struct data_window *data_reader_acquire(struct data_reader *reader)
{
    pthread_mutex_lock(&reader->lock);
    while (reader->filled == reader->taken) pthread_cond_wait(&reader->changed, &reader->lock);
    struct slot_window *slot = &reader->windows[reader->taken++ % DATA_WINDOWS];
    pthread_mutex_unlock(&reader->lock);
    return &slot->window;
}

void data_reader_release(struct data_reader *reader, struct data_window *window)
{
    pthread_mutex_lock(&reader->lock);
    ASSERT(window == &reader->windows[reader->released % DATA_WINDOWS].window);
    reader->released++;
    pthread_cond_signal(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

uint64_t data_reader_memory(struct data_reader *reader)
{
    uint64_t bytes = 0;
    uint64_t largest = 0;
    pthread_mutex_lock(&reader->lock);
    const bool more = !reader->ended;
    for (uint32_t i = 0; i < DATA_WINDOWS; i++) {
        bytes += reader->memory[i];
        if (reader->memory[i] > largest) largest = reader->memory[i];
    }
    pthread_mutex_unlock(&reader->lock);
    return more ? DATA_WINDOWS * largest : bytes;
}

void data_reader_stop(struct data_reader *reader)
{
    if (reader == NULL) return;
    if (reader->thread_runs) {
        pthread_mutex_lock(&reader->lock);
        reader->stop = true;
        pthread_cond_signal(&reader->changed);
        pthread_mutex_unlock(&reader->lock);
        pthread_join(reader->thread, NULL);
    }
    for (uint32_t i = 0; i < DATA_INTERLEAVE_MAX; i++) data_frame_close(reader->open[i].frame);
    data_frame_close(reader->opts.first);
    for (uint32_t i = 0; i < DATA_WINDOWS; i++) {
        struct slot_window *slot = &reader->windows[i];
        for (uint32_t j = 0; j < slot->blocks_count; j++) mem_free(slot->blocks[j].bytes);
        mem_free(slot->blocks);
        mem_free(slot->window.pieces);
        mem_free(slot->window.order);
    }
    mem_free(reader->file_order);
    pthread_mutex_destroy(&reader->lock);
    pthread_cond_destroy(&reader->changed);
    mem_free(reader);
}
