/* checkpoint_folder is the life of checkpoint folders under a model directory, by name alone:
 *
 *     .tmp-ckpt-N   being written                      --publish-->  ckpt-N
 *     .old-ckpt-N   replaced by a new ckpt-N; put back at the next start if that did not come to be
 *     .tmp-drop-ckpt-N   being removed
 *
 * Each move is one rename, so that at any moment a ckpt-N is whole or not there. */
#ifndef SHOAL_TRAIN_CHECKPOINT_FOLDER_H
#define SHOAL_TRAIN_CHECKPOINT_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The folder that is being written. Caller owns *path_out (mem_free). */
int checkpoint_folder_temporary(const char *model_dir, uint64_t step, char **path_out,
                                struct err *err);

/* "ckpt-1000" is step 1000: no leading zeros, nothing behind. */
bool checkpoint_folder_step(const char *name, uint64_t *step_out);

/* The last name of a path, which may end in slashes, parted from what stands before it ("." when
 * nothing does). Caller owns both. */
int checkpoint_folder_split(const char *path, char **parent_out, char **name_out, struct err *err);

/* .tmp-ckpt-N becomes ckpt-N, also when there is one already. */
int checkpoint_folder_publish(const char *model_dir, uint64_t step, struct err *err);

/* Removes all but the last `keep`; never `step`. */
int checkpoint_folder_prune(const char *model_dir, uint32_t keep, uint64_t step, struct err *err);

#endif
