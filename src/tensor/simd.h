/* simd is the small vocabulary that kernels (*_isa.c) are written in, once for all instruction
 * sets: `vf` is a vector of VF float32, `vm` a comparison's answer per lane. Included only by files
 * that the build compiles once per instruction set, with ISA and ISA_<name> defined.
 *
 *           VF   registers   multiply-add
 *   avx512  16   32          fused
 *   avx2     8   16          fused
 *   plain    4   16          SSE2, multiply then add
 *
 * Partial vectors: vf_loadn and vf_storen touch only the first n lanes in memory, n in 1..VF;
 * lanes that were not loaded are 0. Sums over lanes are in one fixed order.
 *
 * vf_exp, vf_log, vf_sigmoid, vf_softplus_tail, vf_tanh are within 2 units in the last place. */
#ifndef SHOAL_TENSOR_SIMD_H
#define SHOAL_TENSOR_SIMD_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ISA_PASTE(name, isa) name##_##isa
#define ISA_EXPAND(name, isa) ISA_PASTE(name, isa)
#define ISA_NAME(name) ISA_EXPAND(name, ISA) /* gemm -> gemm_avx2 */

#define INLINE static inline __attribute__((always_inline, unused))

/* What differs: names of types and instructions, partial loads, comparisons, sums over lanes. */
#if defined(ISA_avx512)

#define VF 16
#define MM(op) _mm512_##op
#define MM_SI(op) _mm512_##op##_si512
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

INLINE vm vm_first(size_t n) /* the first n lanes; n <= VF */
{
    return (vm)_bzhi_u32(0xffff, (uint32_t)n);
}
INLINE vf vf_loadn(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(vm_first(n), p);
}
INLINE void vf_storen(float *p, vf x, size_t n)
{
    _mm512_mask_storeu_ps(p, vm_first(n), x);
}
INLINE vf vf_fma(vf a, vf b, vf c) /* a b + c */
{
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vf vf_fnma(vf a, vf b, vf c) /* c - a b */
{
    return _mm512_fnmadd_ps(a, b, c);
}
INLINE vm vf_gt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
INLINE vm vf_ge(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
INLINE vf vf_select(vm m, vf a, vf b) /* m ? a : b */
{
    return _mm512_mask_blend_ps(m, b, a);
}
INLINE vf vf_keep(vm m, vf a) /* m ? a : 0 */
{
    return _mm512_maskz_mov_ps(m, a);
}
INLINE uint32_t vm_bits(vm m)
{
    return m;
}
INLINE vm vm_from_bits(uint32_t bits)
{
    return (vm)bits;
}
INLINE float vf_sum(vf a)
{
    const __m256 x = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
INLINE float vf_max_lanes(vf a)
{
    return _mm512_reduce_max_ps(a);
}
/* r[i] becomes column i of the square that the vectors were rows of. */
INLINE void vf_transpose(vf r[16])
{
    __m512 t[16];
    for (int i = 0; i < 16; i += 4) { /* 4 x 4 squares within the 128-bit quarters */
        const __m512 a = _mm512_unpacklo_ps(r[i], r[i + 1]);
        const __m512 b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        const __m512 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);
        const __m512 d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) { /* then the quarters as a 4 x 4 square */
        const __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        const __m512 b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        const __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        const __m512 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#elif defined(ISA_avx2)

#define VF 8
#define MM(op) _mm256_##op
#define MM_SI(op) _mm256_##op##_si256
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;

INLINE vm vm_first(size_t n)
{
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_ps((const float *)(const void *)(ones + 8 - n));
}
INLINE vf vf_loadn(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, _mm256_castps_si256(vm_first(n)));
}
INLINE void vf_storen(float *p, vf x, size_t n)
{
    _mm256_maskstore_ps(p, _mm256_castps_si256(vm_first(n)), x);
}
INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
INLINE vm vf_gt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}
INLINE vm vf_ge(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_GE_OQ);
}
INLINE vf vf_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}
INLINE vm vm_from_bits(uint32_t bits)
{
    const vi bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const vi set = _mm256_and_si256(_mm256_set1_epi32((int32_t)bits), bit);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bit));
}
INLINE float vf_sum(vf a)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
INLINE float vf_max_lanes(vf a)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
INLINE void vf_transpose(vf r[8])
{
    __m256 t[8];
    for (int i = 0; i < 8; i += 4) {
        const __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]);
        const __m256 b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        const __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
        const __m256 d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

#else

#define VF 4
#define MM(op) _mm_##op
#define MM_SI(op) _mm_##op##_si128
typedef __m128 vf;
typedef __m128i vi;
typedef __m128 vm;

INLINE vm vm_first(size_t n)
{
    const vi index = _mm_setr_epi32(0, 1, 2, 3);
    return _mm_castsi128_ps(_mm_cmplt_epi32(index, _mm_set1_epi32((int32_t)n)));
}
INLINE vf vf_loadn(const float *p, size_t n)
{
    float part[4] = {0};
    for (size_t i = 0; i < n; i++) part[i] = p[i];
    return _mm_loadu_ps(part);
}
INLINE void vf_storen(float *p, vf x, size_t n)
{
    float part[4];
    _mm_storeu_ps(part, x);
    for (size_t i = 0; i < n; i++) p[i] = part[i];
}
INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm_add_ps(_mm_mul_ps(a, b), c);
}
INLINE vf vf_fnma(vf a, vf b, vf c)
{
    return _mm_sub_ps(c, _mm_mul_ps(a, b));
}
INLINE vm vf_gt(vf a, vf b)
{
    return _mm_cmpgt_ps(a, b);
}
INLINE vm vf_ge(vf a, vf b)
{
    return _mm_cmpge_ps(a, b);
}
INLINE vf vf_select(vm m, vf a, vf b)
{
    return _mm_or_ps(_mm_and_ps(m, a), _mm_andnot_ps(m, b));
}
INLINE vm vm_from_bits(uint32_t bits)
{
    const vi bit = _mm_setr_epi32(1, 2, 4, 8);
    const vi set = _mm_and_si128(_mm_set1_epi32((int32_t)bits), bit);
    return _mm_castsi128_ps(_mm_cmpeq_epi32(set, bit));
}
INLINE float vf_sum(vf a)
{
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps(a, a, 1)));
}
INLINE float vf_max_lanes(vf a)
{
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps(a, a, 1)));
}
INLINE void vf_transpose(vf r[4])
{
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
}

#endif

#if VF < 16 /* Masks are vectors. */
INLINE vf vf_keep(vm m, vf a)
{
    return MM(and_ps)(m, a);
}
INLINE uint32_t vm_bits(vm m)
{
    return (uint32_t)MM(movemask_ps)(m);
}
#endif

/* What is the same but for the prefix of its instructions. */
INLINE vf vf_load(const float *p)
{
    return MM(loadu_ps)(p);
}
INLINE void vf_store(float *p, vf x)
{
    MM(storeu_ps)(p, x);
}
INLINE vf vf_set(float x)
{
    return MM(set1_ps)(x);
}
INLINE vf vf_add(vf a, vf b)
{
    return MM(add_ps)(a, b);
}
INLINE vf vf_sub(vf a, vf b)
{
    return MM(sub_ps)(a, b);
}
INLINE vf vf_mul(vf a, vf b)
{
    return MM(mul_ps)(a, b);
}
INLINE vf vf_div(vf a, vf b)
{
    return MM(div_ps)(a, b);
}
INLINE vf vf_max(vf a, vf b) /* b where a is NaN */
{
    return MM(max_ps)(a, b);
}
INLINE vf vf_min(vf a, vf b) /* b where a is NaN */
{
    return MM(min_ps)(a, b);
}
INLINE vf vf_relu(vf a) /* NaN stays NaN */
{
    return MM(max_ps)(MM(setzero_ps)(), a);
}
INLINE vf vf_sqrt(vf a)
{
    return MM(sqrt_ps)(a);
}
INLINE vi vf_bits(vf a)
{
    return MM_SI(castps)(a);
}
INLINE vi vf_round(vf a) /* to the nearest integer */
{
    return MM(cvtps_epi32)(a);
}
INLINE vi vi_set(int32_t x)
{
    return MM(set1_epi32)(x);
}
INLINE vi vi_load(const void *p)
{
    return MM_SI(loadu)(p);
}
INLINE vi vi_add(vi a, vi b)
{
    return MM(add_epi32)(a, b);
}
INLINE vi vi_sub(vi a, vi b)
{
    return MM(sub_epi32)(a, b);
}
INLINE vi vi_and(vi a, vi b)
{
    return MM_SI(and)(a, b);
}
INLINE vi vi_or(vi a, vi b)
{
    return MM_SI(or)(a, b);
}
INLINE vf vi_to_float(vi a) /* converted */
{
    return MM(cvtepi32_ps)(a);
}
#define vi_shl(a, n) MM(slli_epi32)((a), (n))
#define vi_shr(a, n) MM(srai_epi32)((a), (n))
#define vi_shru(a, n) MM(srli_epi32)((a), (n))

INLINE vf vi_float(vi a) /* the same bits */
{
    vf x;
    memcpy(&x, &a, sizeof x);
    return x;
}
INLINE vf vf_zero(void)
{
    return vf_set(0.0f);
}
/* n lanes, n from 1 to VF: whole vectors by the plain instructions. */
INLINE vf vf_load_tail(const float *p, size_t n)
{
    return n >= VF ? vf_load(p) : vf_loadn(p, n);
}
INLINE void vf_store_tail(float *p, vf x, size_t n)
{
    if (n >= VF) {
        vf_store(p, x);
    } else {
        vf_storen(p, x, n);
    }
}
/* for (i = 0; i < n; i += VF), with k = n - i for the _tail forms. */
#define FOR_LANES(i, k, n) for (size_t i = 0, k = (n); i < (n); i += VF, k -= VF)

INLINE vf vf_abs(vf a)
{
    return vi_float(vi_and(vf_bits(a), vi_set(0x7fffffff)));
}
/* |a| with the sign of b; a is not negative. */
INLINE vf vf_with_sign(vf a, vf b)
{
    return vi_float(vi_or(vf_bits(a), vi_and(vf_bits(b), vi_set((int32_t)0x80000000))));
}

/* e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is taken away in two parts so that r is
 * exact enough, then e^r by its minimax polynomial of degree 6. 2^n goes in two factors, so that
 * results below the smallest normal number come out right. */
INLINE vf vf_exp(vf x)
{
    const vm nan = vf_ge(x, x); /* false where x is NaN */
    const vf c = vf_min(vf_max(x, vf_set(-104.0f)), vf_set(89.0f));
    const vi n = vf_round(vf_mul(c, vf_set(1.44269504088896341f)));
    const vf nf = vi_to_float(n);
    vf r = vf_fnma(nf, vf_set(0.693145751953125f), c);
    r = vf_fnma(nf, vf_set(1.42860682030941723e-6f), r);
    vf p = vf_set(1.37805939e-3f);
    p = vf_fma(p, r, vf_set(8.37312452e-3f));
    p = vf_fma(p, r, vf_set(4.16695364e-2f));
    p = vf_fma(p, r, vf_set(1.66664720e-1f));
    p = vf_fma(p, r, vf_set(4.99999851e-1f));
    p = vf_fma(vf_mul(r, r), p, r);
    p = vf_add(p, vf_set(1.0f));
    const vi half = vi_shr(n, 1);
    const vi bias = vi_set(127);
    const vf s0 = vi_float(vi_shl(vi_add(half, bias), 23));
    const vf s1 = vi_float(vi_shl(vi_add(vi_sub(n, half), bias), 23));
    return vf_select(nan, vf_mul(vf_mul(p, s0), s1), x);
}

/* log(x) = n ln 2 + log(m), m in [sqrt(1/2), sqrt(2)). x must be a positive, normal number or 0
 * (-infinity), infinity or NaN; what is below the normal numbers is taken as the smallest of them.
 */
INLINE vf vf_log(vf x)
{
    const vf c = vf_max(x, vf_set(1.17549435e-38f));
    const vi bits = vi_sub(vf_bits(c), vi_set(0x3f3504f3));
    const vf n = vi_to_float(vi_shr(bits, 23));
    const vf m = vi_float(vi_add(vi_and(bits, vi_set(0x007fffff)), vi_set(0x3f3504f3)));
    const vf f = vf_sub(m, vf_set(1.0f));
    vf p = vf_set(7.0376836292e-2f);
    p = vf_fma(p, f, vf_set(-1.1514610310e-1f));
    p = vf_fma(p, f, vf_set(1.1676998740e-1f));
    p = vf_fma(p, f, vf_set(-1.2420140846e-1f));
    p = vf_fma(p, f, vf_set(1.4249322787e-1f));
    p = vf_fma(p, f, vf_set(-1.6668057665e-1f));
    p = vf_fma(p, f, vf_set(2.0000714765e-1f));
    p = vf_fma(p, f, vf_set(-2.4999993993e-1f));
    p = vf_fma(p, f, vf_set(3.3333331174e-1f));
    const vf f2 = vf_mul(f, f);
    vf y = vf_mul(vf_mul(p, f), f2);
    y = vf_fma(n, vf_set(-2.12194440e-4f), y);
    y = vf_fnma(vf_set(0.5f), f2, y);
    vf r = vf_fma(n, vf_set(0.693359375f), vf_add(f, y));
    r = vf_select(vf_gt(x, vf_zero()), r, vf_set(-__builtin_inff()));
    r = vf_select(vf_gt(vf_set(__builtin_inff()), x), r, x); /* infinity and NaN */
    return r;
}

/* Both from e^-|x|, which never overflows. */
INLINE vf vf_sigmoid(vf x)
{
    const vf e = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    const vf top = vf_select(vf_ge(x, vf_zero()), vf_set(1.0f), e);
    return vf_div(top, vf_add(vf_set(1.0f), e));
}
/* log(1 + e^-|x|): softplus(x) without its max(x, 0). With u the power, y = 1 + u as rounded, it is
 * log(y) plus what rounding lost, (u - (y - 1)) / y. */
INLINE vf vf_softplus_tail(vf x)
{
    const vf one = vf_set(1.0f);
    const vf u = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    const vf y = vf_add(one, u);
    return vf_add(vf_log(y), vf_div(vf_sub(u, vf_sub(y, one)), y));
}
/* A polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel. */
INLINE vf vf_tanh(vf x)
{
    const vf a = vf_abs(x);
    const vf z = vf_mul(x, x);
    vf p = vf_set(-5.70498872745e-3f);
    p = vf_fma(p, z, vf_set(2.06390887954e-2f));
    p = vf_fma(p, z, vf_set(-5.37397155531e-2f));
    p = vf_fma(p, z, vf_set(1.33314422036e-1f));
    p = vf_fma(p, z, vf_set(-3.33332819422e-1f));
    const vf small = vf_fma(vf_mul(p, z), x, x);
    const vf e = vf_exp(vf_add(a, a));
    const vf big = vf_sub(vf_set(1.0f), vf_div(vf_set(2.0f), vf_add(e, vf_set(1.0f))));
    return vf_select(vf_gt(vf_set(0.625f), a), small, vf_with_sign(big, x));
}

#endif
