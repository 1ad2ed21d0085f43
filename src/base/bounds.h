/* Every bound in one place: what it limits and why that number. Reaching a bound is a normal event:
 * an error that names the bound, or a counter; never a crash. */
#ifndef SHOAL_BASE_BOUNDS_H
#define SHOAL_BASE_BOUNDS_H

/* Threads of one process. More cores than this on one host is not a machine we have seen. */
#define TEAM_THREADS_MAX 256u

#endif
