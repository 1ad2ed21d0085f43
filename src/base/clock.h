/* clock: monotonic nanoseconds. The core (store, graph, protocol halves) takes time as a value and
 * never calls this; the loop, the CLI and benchmarks do. */
#ifndef SHOAL_BASE_CLOCK_H
#define SHOAL_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_now_ns(void);
double clock_now_secs(void); /* wall clock, seconds since 1970 */

#endif
