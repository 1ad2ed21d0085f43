/* checkpoint_load copies tensors from safetensors files into the tables of a store: all of a
 * checkpoint, or what a file given as train.init_from has. Nothing is kept. */
#ifndef SHOAL_TRAIN_CHECKPOINT_LOAD_H
#define SHOAL_TRAIN_CHECKPOINT_LOAD_H

#include "train/checkpoint.h"

/* The files have been verified and the tables compared. Sets values, slots and shard states. */
int checkpoint_load_tables(const struct checkpoint *checkpoint, struct store *store,
                           struct err *err);

#endif
