/* What the fuzz targets of this layer share: bytes -> records -> batches, with every check on. */
#ifndef SHOAL_DATA_FUZZ_H
#define SHOAL_DATA_FUZZ_H

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "data/data_batcher.h"
#include "data/data_frame.h"

enum { FUZZ_ROWS = 100 };

/* One feature of every kind that the format's columns can feed; made once, kept. */
static inline const struct data_spec *fuzz_spec(const char *features)
{
    static struct data_spec *spec;
    if (spec == NULL) {
        struct config *config = NULL;
        ASSERT(config_parse("fuzz", features, &config, NULL) == 0);
        ASSERT(data_spec_create(config_root(config), NULL, &spec, NULL) == 0);
        config_destroy(config);
    }
    return spec;
}

static inline void fuzz_decode(const struct data_spec *spec, enum data_format format,
                               const struct data_piece *pieces, uint32_t count)
{
    struct data_layout layout;
    struct data_batcher *batcher = NULL;
    const struct batch *batch = NULL;
    const struct data_broken *broken = NULL;
    uint32_t broken_count = 0;
    const struct data_settings settings = {.index_base = 1};
    ASSERT(data_layout_init(&layout, spec, &settings, format, NULL, NULL) == 0);
    const struct data_batcher_opts opts = {.spec = spec, .layout = &layout, .rows_max = FUZZ_ROWS};
    ASSERT(data_batcher_create(&opts, &batcher, NULL) == 0);
    ASSERT(data_batcher_make(batcher, NULL, pieces, NULL, count, &batch, &broken, &broken_count,
                             NULL) == 0);
    ASSERT(batch->rows + broken_count == count);
    ASSERT(data_batch_ok(batch, data_spec_schema(spec)));
    data_batcher_destroy(batcher);
    data_layout_fini(&layout);
}

/* Cuts the bytes into records and decodes the first FUZZ_ROWS of them, each from a block of its own so
 * that a read past its end is seen. */
static inline void fuzz_file(const struct data_spec *spec, const struct data_frame_opts *opts,
                             const uint8_t *bytes, size_t count, const uint8_t *labels,
                             size_t labels_count)
{
    struct data_piece pieces[FUZZ_ROWS];
    uint32_t pieces_count = 0;
    struct data_frame *frame = NULL;
    if (data_frame_open_memory(bytes, count, labels, labels_count, opts, &frame, NULL) != 0) return;
    for (;;) {
        struct data_record record;
        enum data_fault fault = DATA_FAULT_COUNT;
        const int rc = data_frame_next(frame, &record, &fault, NULL);
        if (rc == SHOAL_END) break;
        ASSERT(rc == 0 || rc == SHOAL_ECORRUPT);
        ASSERT((rc == 0) == (fault == DATA_FAULT_COUNT));
        if (rc != 0 || pieces_count == FUZZ_ROWS) continue;
        uint8_t *copy = malloc(record.count + 1);
        ASSERT(copy != NULL);
        memcpy(copy, record.bytes, record.count);
        pieces[pieces_count++] =
            (struct data_piece){.bytes = copy, .count = (uint32_t)record.count};
    }
    data_frame_close(frame);
    fuzz_decode(spec, opts->format, pieces, pieces_count);
    for (uint32_t i = 0; i < pieces_count; i++) free((void *)(uintptr_t)pieces[i].bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#endif
