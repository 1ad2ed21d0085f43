/* path turns what a user gave into a name for the kernel; the one place that knows schemes. For
 * the files of this layer only. */
#ifndef SHOAL_IO_PATH_H
#define SHOAL_IO_PATH_H

#include "base/err.h"

/* Strips "file:" or "file://"; refuses other schemes (naming the known ones), empty and overlong
 * paths. *plain_out points into path. */
int path_plain(const char *path, const char **plain_out, struct err *err);

#endif
