/* Kernels over embedding rows: gather, pooling, and the sum of gradients per unique row. Rows are
 * short (4 to 64 floats), so the work is in reaching them; the compiler gets the common widths as
 * constants. */
#include "tensor/isa.h"

/* Calls body(width) with width a constant where it is one of the common ones. */
#define WITH_WIDTH(width, body)                                                                    \
    switch (width) {                                                                               \
    case 4: body(4); break;                                                                        \
    case 8: body(8); break;                                                                        \
    case 16: body(16); break;                                                                      \
    case 32: body(32); break;                                                                      \
    default: body(width); break;                                                                   \
    }

INLINE void gather_rows(size_t rows, size_t width, const float *table, size_t ldtable,
                        const uint32_t *slots, float *dst, size_t lddst)
{
    for (size_t i = 0; i < rows; i++, dst += lddst) {
        const float *src = table + slots[i] * ldtable;
        FOR_LANES(j, k, width) vf_store_tail(dst + j, vf_load_tail(src + j, k), k);
    }
}

void gather_isa(size_t rows, size_t width, const float *table, size_t ldtable,
                const uint32_t *slots, float *dst, size_t lddst)
{
#define BODY(w) gather_rows(rows, w, table, ldtable, slots, dst, lddst)
    WITH_WIDTH(width, BODY)
#undef BODY
}

struct span {
    uint32_t begin;
    uint32_t end;
};

INLINE struct span span_of(const struct batch_ids *ids, uint32_t row)
{
    if (ids->offsets == NULL) return (struct span){row, row + 1};
    return (struct span){ids->offsets[row], ids->offsets[row + 1]};
}

/* What the pooled sum of a row is multiplied by; not asked for empty rows. */
INLINE float pool_factor(enum kern_pool pool, const struct batch_ids *ids, struct span span)
{
    if (pool == KERN_SUM) return 1;
    float sum = 0;
    if (ids->weights == NULL) {
        sum = (float)(span.end - span.begin);
    } else {
        for (uint32_t i = span.begin; i < span.end; i++)
            sum += pool == KERN_MEAN ? ids->weights[i] : ids->weights[i] * ids->weights[i];
    }
    return pool == KERN_MEAN ? 1 / sum : 1 / __builtin_sqrtf(sum);
}

INLINE void pool_rows(enum kern_pool pool, size_t width, const struct batch_ids *ids,
                      uint32_t row_begin, uint32_t row_end, const float *table, size_t ldtable,
                      float *out, size_t ldout)
{
    for (uint32_t row = row_begin; row < row_end; row++) {
        const struct span span = span_of(ids, row);
        const vf factor = vf_set(span.begin == span.end ? 0 : pool_factor(pool, ids, span));
        FOR_LANES(j, k, width)
        {
            vf sum = vf_zero();
            for (uint32_t i = span.begin; i < span.end; i++) {
                const vf h = vf_load_tail(table + ids->slots[i] * ldtable + j, k);
                sum =
                    ids->weights == NULL ? vf_add(sum, h) : vf_fma(vf_set(ids->weights[i]), h, sum);
            }
            vf_store_tail(out + row * ldout + j, vf_mul(sum, factor), k);
        }
    }
}

void pool_forward_isa(enum kern_pool pool, size_t width, const struct batch_ids *ids,
                      uint32_t row_begin, uint32_t row_end, const float *table, size_t ldtable,
                      float *out, size_t ldout)
{
#define BODY(w) pool_rows(pool, w, ids, row_begin, row_end, table, ldtable, out, ldout)
    WITH_WIDTH(width, BODY)
#undef BODY
}

void pool_backward_isa(enum kern_pool pool, size_t width, const struct batch_ids *ids,
                       uint32_t row_begin, uint32_t row_end, const float *dout, size_t lddout,
                       float *doccs, size_t lddoccs)
{
    for (uint32_t row = row_begin; row < row_end; row++) {
        const struct span span = span_of(ids, row);
        if (span.begin == span.end) continue;
        const float factor = pool_factor(pool, ids, span);
        for (uint32_t i = span.begin; i < span.end; i++) {
            const vf f = vf_set(ids->weights == NULL ? factor : factor * ids->weights[i]);
            FOR_LANES(j, k, width)
            vf_store_tail(doccs + i * lddoccs + j,
                          vf_mul(f, vf_load_tail(dout + row * lddout + j, k)), k);
        }
    }
}

/* The gradient row of an occurrence. Occurrences of one slot ascend, so `at` only moves on. */
INLINE const float *occ_grad(const struct kern_occ_source *sources, uint32_t sources_count,
                             uint32_t occ, uint32_t *at)
{
    while (*at < sources_count && occ - sources[*at].occ_base >= sources[*at].count) {
        if (occ < sources[*at].occ_base) return NULL;
        ++*at;
    }
    if (*at == sources_count) return NULL;
    return sources[*at].grad + (occ - sources[*at].occ_base) * sources[*at].ld;
}

INLINE void rows_grad_slots(size_t width, const struct batch_keys *keys, uint32_t slot_begin,
                            uint32_t slot_end, const struct kern_occ_source *sources,
                            uint32_t sources_count, float *out, size_t ldout)
{
    for (uint32_t slot = slot_begin; slot < slot_end; slot++) {
        const uint32_t begin = keys->occ_offsets[slot];
        const uint32_t end = keys->occ_offsets[slot + 1];
        FOR_LANES(j, k, width)
        {
            vf sum = vf_zero();
            uint32_t at = 0;
            for (uint32_t i = begin; i < end; i++) {
                const float *grad = occ_grad(sources, sources_count, keys->occs[i], &at);
                if (grad != NULL) sum = vf_add(sum, vf_load_tail(grad + j, k));
            }
            vf_store_tail(out + slot * ldout + j, sum, k);
        }
    }
}

void rows_grad_isa(size_t width, const struct batch_keys *keys, uint32_t slot_begin,
                   uint32_t slot_end, const struct kern_occ_source *sources, uint32_t sources_count,
                   float *out, size_t ldout)
{
#define BODY(w) rows_grad_slots(w, keys, slot_begin, slot_end, sources, sources_count, out, ldout)
    WITH_WIDTH(width, BODY)
#undef BODY
}
