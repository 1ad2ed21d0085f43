/* Any bytes: read as a graph, they are refused or give one that can be planned and written again,
 * to bytes that are read as the same. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "graph/exec_plan.h"
#include "graph/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Bytes of a graph, read and written once more, do not change. */
static void check_again(const struct graph *graph)
{
    struct err err;
    struct graph *back = NULL;
    uint8_t *first = NULL;
    uint8_t *second = NULL;
    size_t first_count = 0;
    size_t second_count = 0;
    ASSERT(graph_encode(graph, &first, &first_count, &err) == 0);
    ASSERT(graph_decode(first, first_count, &back, &err) == 0);
    ASSERT(graph_encode(back, &second, &second_count, &err) == 0);
    ASSERT(first_count == second_count);
    ASSERT(memcmp(first, second, first_count) == 0);
    mem_free(first);
    mem_free(second);
    graph_destroy(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct err err;
    struct graph *graph = NULL;
    if (graph_decode(bytes, count, &graph, &err) != 0) return 0;
    ASSERT(graph_check(graph, NULL) == 0);
    check_again(graph);

    struct plan plan;
    if (plan_init(&plan, graph, graph_loss(graph) != GRAPH_NONE, NULL, 0, &err) == 0) {
        plan_fini(&plan);
    }
    struct graph_parts parts;
    if (graph_cut(graph, &parts, &err) == 0) graph_parts_fini(&parts);
    graph_destroy(graph);
    return 0;
}
