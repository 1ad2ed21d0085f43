/* TFRecord: u64 length, u32 masked CRC32C of the length, payload, u32 masked CRC32C of the payload,
 * all little-endian. */
#include <string.h>

#include "base/bounds.h"
#include "base/hash.h"
#include "data/data_frame_kinds.h"

enum { HEAD_BYTES = 12, TAIL_BYTES = 4 };

static uint32_t load_u32(const uint8_t *bytes)
{
    uint32_t value = 0;
    memcpy(&value, bytes, sizeof value); /* Little-endian, as all machines that we build for. */
    return value;
}

/* A length that cannot be trusted says nothing about where the next record is: the file ends. */
static int broken_length(struct data_frame *frame, enum data_fault fault,
                         enum data_fault *fault_out, struct err *err)
{
    frame->ended = true;
    *fault_out = fault;
    return err_set(err, SHOAL_ECORRUPT, "%s", data_fault_text(fault));
}

int data_frame_next_tfrecord(struct data_frame *frame, struct data_record *record_out,
                             enum data_fault *fault_out, struct err *err)
{
    const uint8_t *bytes = NULL;
    size_t have = 0;
    int rc = stream_peek(frame->stream, HEAD_BYTES, &bytes, &have, err);
    if (rc == SHOAL_ECORRUPT) return data_frame_end_early(frame, fault_out, err);
    if (rc != 0) return rc;
    if (have == 0) {
        frame->ended = true;
        return SHOAL_END;
    }
    if (have < HEAD_BYTES) return data_frame_end_early(frame, fault_out, err);
    if (load_u32(bytes + 8) != hash_crc32c_mask(hash_crc32c(0, bytes, 8))) {
        return broken_length(frame, DATA_FAULT_LENGTH_CRC, fault_out, err);
    }
    uint64_t length = 0;
    memcpy(&length, bytes, sizeof length);
    if (length > DATA_RECORD_BYTES_MAX) {
        return broken_length(frame, DATA_FAULT_TOO_LONG, fault_out, err);
    }
    const size_t whole = HEAD_BYTES + (size_t)length + TAIL_BYTES;
    if (have < whole) {
        rc = stream_peek(frame->stream, whole, &bytes, &have, err);
        if (rc != 0) return rc;
        if (have < whole) return data_frame_end_early(frame, fault_out, err);
    }
    const uint8_t *payload = bytes + HEAD_BYTES;
    const uint32_t crc = hash_crc32c_mask(hash_crc32c(0, payload, (size_t)length));
    stream_skip(frame->stream, whole);
    if (load_u32(payload + length) != crc) {
        *fault_out = DATA_FAULT_PAYLOAD_CRC;
        return err_set(err, SHOAL_ECORRUPT, "%s", data_fault_text(DATA_FAULT_PAYLOAD_CRC));
    }
    record_out->bytes = payload;
    record_out->count = (size_t)length;
    return 0;
}
