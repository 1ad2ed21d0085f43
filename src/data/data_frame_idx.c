/* IDX: two zero bytes, a type, the number of dimensions, the dimensions as big-endian u32, then the
 * elements. The first dimension counts images; the labels are a file of one dimension. */
#include <string.h>

#include "base/bounds.h"
#include "base/mem.h"
#include "data/data_frame_kinds.h"
#include "data/data_idx.h"

static int broken_header(const char *what, enum data_fault *fault_out, struct err *err)
{
    *fault_out = DATA_FAULT_HEADER;
    return err_set(err, SHOAL_ECORRUPT, "%s", what);
}

/* The type, how many elements there are, and the bytes of each. */
static int read_head(struct stream *stream, uint8_t *type_out, uint64_t *count_out,
                     size_t *element_bytes_out, enum data_fault *fault_out, struct err *err)
{
    const uint8_t *bytes = NULL;
    size_t have = 0;
    int rc = stream_peek(stream, 4, &bytes, &have, err);
    if (rc != 0 && rc != SHOAL_ECORRUPT) return rc;
    if (rc != 0 || have < 4 || bytes[0] != 0 || bytes[1] != 0 || data_idx_bytes(bytes[2]) == 0 ||
        bytes[3] == 0) {
        return broken_header("not an IDX file", fault_out, err);
    }
    const uint8_t type = bytes[2];
    const size_t dims = bytes[3];
    const size_t head = 4 + 4 * dims;
    rc = stream_peek(stream, head, &bytes, &have, err);
    if (rc != 0) return rc;
    if (have < head) return broken_header("an IDX header is cut short", fault_out, err);
    uint64_t element = data_idx_bytes(type);
    uint32_t size = 0;
    for (size_t i = 0; i < dims; i++) {
        memcpy(&size, bytes + 4 + 4 * i, 4);
        size = __builtin_bswap32(size);
        if (i == 0) {
            *count_out = size;
        } else if (__builtin_mul_overflow(element, (uint64_t)size, &element)) {
            element = UINT64_MAX;
        }
        if (element == 0 || element > DATA_RECORD_BYTES_MAX) {
            return broken_header("an IDX element has an impossible size", fault_out, err);
        }
    }
    stream_skip(stream, head);
    *type_out = type;
    *element_bytes_out = (size_t)element;
    return 0;
}

int data_frame_start_idx(struct data_frame *frame, uint64_t number, enum data_fault *fault_out,
                         struct err *err)
{
    uint64_t labels_count = 0;
    size_t label_bytes = 0;
    int rc = read_head(frame->stream, &frame->image_type, &frame->images_count,
                       &frame->element_bytes, fault_out, err);
    if (rc == 0 && frame->labels != NULL) {
        rc = read_head(frame->labels, &frame->label_type, &labels_count, &label_bytes, fault_out,
                       err);
        if (rc == 0 && label_bytes != data_idx_bytes(frame->label_type)) {
            return broken_header("the labels have more than one number each", fault_out, err);
        }
        if (rc == 0 && labels_count != frame->images_count) {
            *fault_out = DATA_FAULT_HEADER;
            return err_set(err, SHOAL_ECORRUPT, "%llu images, but %llu labels beside them",
                           (unsigned long long)frame->images_count,
                           (unsigned long long)labels_count);
        }
    }
    if (rc != 0) return rc;
    frame->joined = mem_alloc(MEM_DATA, sizeof(struct data_idx_head) + frame->element_bytes);
    if (frame->joined == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for an image");
    rc = data_frame_step(frame->stream, number * frame->element_bytes, err);
    if (rc == 0 && frame->labels != NULL) {
        rc = data_frame_step(frame->labels, number * label_bytes, err);
    }
    return rc == SHOAL_END ? 0 : rc;
}

/* After the last image: a compressed file tells only at its very end whether all of it was right. */
static int end_whole(struct data_frame *frame, enum data_fault *fault_out, struct err *err)
{
    struct stream *streams[] = {frame->stream, frame->labels};
    for (int i = 0; i < 2 && streams[i] != NULL; i++) {
        const uint8_t *bytes = NULL;
        size_t have = 0;
        const int rc = stream_peek(streams[i], 1, &bytes, &have, err);
        if (rc == SHOAL_ECORRUPT) return data_frame_end_early(frame, fault_out, err);
        if (rc != 0) return rc;
    }
    frame->ended = true;
    return SHOAL_END;
}

int data_frame_next_idx(struct data_frame *frame, struct data_record *record_out,
                        enum data_fault *fault_out, struct err *err)
{
    if (frame->number >= frame->images_count) return end_whole(frame, fault_out, err);
    struct data_idx_head head = {.type = frame->image_type, .has_label = frame->labels != NULL};
    const uint8_t *bytes = NULL;
    size_t have = 0;
    int rc = 0;
    if (frame->labels != NULL) {
        const size_t want = data_idx_bytes(frame->label_type);
        rc = stream_peek(frame->labels, want, &bytes, &have, err);
        if (rc != 0 && rc != SHOAL_ECORRUPT) return rc;
        if (rc != 0 || have < want) return data_frame_end_early(frame, fault_out, err);
        head.label = data_idx_number(frame->label_type, bytes);
        stream_skip(frame->labels, want);
    }
    rc = stream_peek(frame->stream, frame->element_bytes, &bytes, &have, err);
    if (rc != 0 && rc != SHOAL_ECORRUPT) return rc;
    if (rc != 0 || have < frame->element_bytes) return data_frame_end_early(frame, fault_out, err);
    memcpy(frame->joined, &head, sizeof head);
    memcpy(frame->joined + sizeof head, bytes, frame->element_bytes);
    stream_skip(frame->stream, frame->element_bytes);
    record_out->bytes = frame->joined;
    record_out->count = sizeof head + frame->element_bytes;
    return 0;
}
