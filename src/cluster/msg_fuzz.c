/* Decode, encode, compare: what is accepted is what msg_encode would write. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "cluster/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { BLOCKS_MAX = 64 };
    struct msg_block blocks[BLOCKS_MAX];
    struct msg msg;
    uint8_t *bytes = mem_alloc(MEM_NET, size);
    if (bytes == NULL) return 0;
    if (size > 0) memcpy(bytes, data, size);
    if (msg_decode(bytes, size, blocks, BLOCKS_MAX, &msg, NULL) == 0) {
        ASSERT(msg_bytes(&msg) == size);
        uint8_t *again = mem_alloc(MEM_NET, size);
        if (again != NULL) {
            msg_encode(&msg, again);
            ASSERT(memcmp(bytes, again, size) == 0);
        }
        mem_free(again);
    }
    mem_free(bytes);
    return 0;
}
