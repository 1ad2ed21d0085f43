/* checkpoint_files are the safetensors files of one checkpoint, each opened when first asked for and
 * all closed together. A plain value; one thread at a time. */
#ifndef SHOAL_TRAIN_CHECKPOINT_FILES_H
#define SHOAL_TRAIN_CHECKPOINT_FILES_H

#include "io/safetensors.h"
#include "train/checkpoint.h"

struct checkpoint_files {
    const struct checkpoint *checkpoint; /* borrowed */
    struct safetensors **files;
    struct str path; /* of the file that was asked for last */
};

int checkpoint_files_init(struct checkpoint_files *files, const struct checkpoint *checkpoint,
                          struct err *err);
void checkpoint_files_fini(struct checkpoint_files *files); /* a zeroed one is fine */

/* Borrowed until fini. */
int checkpoint_files_get(struct checkpoint_files *files, uint32_t index,
                         const struct safetensors **file_out, struct err *err);

#endif
