/* inspect shows any file we write, as a table for people or as JSON for programs, the same facts in
 * both:
 *   model_dir          its checkpoints: step, bytes, age, whether each is whole
 *   checkpoint folder  step, tables, files, whether it is whole
 *   manifest.json      the same without looking at the files
 *   *.safetensors      tensors: name, type, shape, smallest, largest, mean
 *   event file         tags: points, first and last step, last value
 *   TFRecord file      records, bytes
 *   graph file         nodes, parameters, tables
 * What a path is, its first bytes say, not its name. Nothing is kept; any thread. */
#ifndef SHOAL_TRAIN_INSPECT_H
#define SHOAL_TRAIN_INSPECT_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

/* Adds the description of PATH to `out`: lines of text, or one JSON object and a newline (`kind` says
 * which of the above: "model_dir", "checkpoint", "manifest", "safetensors", "events", "tfrecord",
 * "graph"). Damage is shown, not an error, as long as there is anything to show; SHOAL_ECORRUPT when
 * not; SHOAL_EINVAL for a file that is none of ours. */
int inspect_path(const char *path, bool json, struct str *out, struct err *err);

/* Writes the checkpoint (or a model_dir's newest) as one safetensors file, every tensor whole. */
int inspect_export(const char *path, const char *to, struct err *err);

#endif
