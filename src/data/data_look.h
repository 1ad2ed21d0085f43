/* data_look walks over the records of files of any format, whatever is in them, for people who want
 * to see: data_cat and data_stat. Damage is counted, never fatal. */
#ifndef SHOAL_DATA_LOOK_H
#define SHOAL_DATA_LOOK_H

#include "data/data_parse.h"
#include "data/data_tools.h"

/* What is done with each record; any may be NULL but field. */
struct data_look_visitor {
    void (*begin)(void *ctx);
    void (*field)(void *ctx, const struct data_example_field *field);
    /* whole false: the record turned out to be malformed. Returns false to stop. */
    bool (*end)(void *ctx, bool whole);
    void *ctx;
};

struct data_look_totals {
    uint64_t records;
    uint64_t skipped;
    uint64_t skipped_by[DATA_FAULT_COUNT];
    uint64_t files;
    uint64_t bytes; /* of records */
};

/* Only a file that cannot be opened or read at all is an error; totals_out is set in any case. */
int data_look_run(const struct data_look_opts *opts, const struct data_look_visitor *visitor,
                  struct data_look_totals *totals_out, struct err *err);

#endif
