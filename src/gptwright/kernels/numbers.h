/* Numbers, and functions of them that a compiler can make vectors of.
 *
 * Everything here is built twice, as two libraries: a `number`, which is what products read and write, is
 * bfloat16, or float32 with -DFLOAT32. All arithmetic is float32 in both.
 */
#pragma once

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512BF16__) && !defined(FLOAT32)
#define BFLOAT16_INSTRUCTIONS
#include <immintrin.h>
#endif

#ifdef FLOAT32
typedef float number;
#else
typedef uint16_t number;
#endif
typedef int64_t i64;

/* Fewer elements are done before a second thread has begun; torch's own operations draw the same line. */
#define SHARED(elements) ((elements) >= 32768)

static inline i64 least(i64 a, i64 b) { return a < b ? a : b; }

static inline i64 multiple(i64 count, i64 of) { return (count + of - 1) / of * of; }

#ifdef FLOAT32

static inline float wide(number same) { return same; }

static inline number narrow(float value) { return value; }

static inline void narrow_all(const float *x, number *to, i64 count)
{
    memcpy(to, x, (size_t)count * sizeof(number));
}

#else

static inline float wide(number narrow)
{
    union { uint32_t bits; float value; } both = {(uint32_t)narrow << 16};
    return both.value;
}

/* To the nearest, ties to even; NaN stays NaN. */
static inline number narrow(float value)
{
    union { float value; uint32_t bits; } both = {value};
    uint32_t rounded = (both.bits + 0x7fff + ((both.bits >> 16) & 1)) >> 16;
    return (both.bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (number)rounded;
}

/* The same for many, by the CPU's own instruction where it has one; to that numbers below 1.2e-38 are 0. */
static inline void narrow_all(const float *x, number *to, i64 count)
{
    i64 i = 0;
#ifdef BFLOAT16_INSTRUCTIONS
    for (; i + 16 <= count; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
#endif
#pragma omp simd
    for (i64 j = i; j < count; j++)
        to[j] = narrow(x[j]);
}

#endif

/* exp(x) for x up to 88, within two units in the last place; 2^n times Cephes' polynomial (Moshier 1992) of
 * what is left. Below -87 it is 0. */
static inline float exponential(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    union { float value; int32_t bits; } sum, power;
    float bounded = x < -87.0f ? -87.0f : x;
    sum.value = bounded * 1.44269504f + shift;
    float n = sum.value - shift;
    float r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    power.bits = (sum.bits - 0x4b400000 + 127) << 23;
    return x < -87.0f ? 0.0f : (p * r * r + r + 1.0f) * power.value;
}
