/* The rows of a head: what is done to queries and keys before they are multiplied, and on the way back. */
#pragma once

#include "fates.h"

/* What all heads have in common.
 *
 * even: D, made even by a channel that is 0 where a word has two numbers. Queries and keys are scaled to a
 * mean square of 1 if `scaled`, and turned by rotary factors [T, D] unless null. Of probabilities `dropped`
 * of 65,536 fates are dropped, and the others times `factor`. */
typedef struct {
    i64 T, H, D, even;
    const float *own, *others;
    int scaled;
    float epsilon;
    keys seed;
    uint32_t dropped;
    float factor;
} task;

/* Rows [T, even] of a head's queries, keys, values or gradients, `row` elements apart. */
typedef struct {
    const number *at;
    i64 row;
} rows;

/* Each of D channels times a factor of its own, plus its partner's, half of them away, times another's: that
 * of the channel, or on the way back that of the partner. */
static inline void turn(const float *x, float *to, const float *own, const float *others, int back, i64 D)
{
    i64 half = D / 2;
    for (i64 here = 0; here < D; here += half) {
        i64 there = half - here, factor = back ? there : here;
#pragma omp simd
        for (i64 d = 0; d < half; d++)
            to[here + d] = x[here + d] * own[here + d] + x[there + d] * others[factor + d];
    }
}

/* Rows [T, even] of queries or keys, scaled and turned; inverse [T] is by what they were scaled. */
static inline void take_turned(const task *of, const number *from, i64 row, number *to, float *inverse)
{
    i64 D = of->D;
    for (i64 t = 0; t < of->T; t++, from += row, to += of->even) {
        float scaled[D], turned[D], square = 0.0f;
#pragma omp simd reduction(+ : square)
        for (i64 d = 0; d < D; d++)
            square += wide(from[d]) * wide(from[d]);
        inverse[t] = of->scaled ? 1.0f / sqrtf(square / (float)D + of->epsilon) : 1.0f;
#pragma omp simd
        for (i64 d = 0; d < D; d++)
            scaled[d] = wide(from[d]) * inverse[t];
        if (of->own)
            turn(scaled, turned, of->own + t * D, of->others + t * D, 0, D);
        to[of->even - 1] = 0;
        narrow_all(of->own ? turned : scaled, to, D);
    }
}

/* Gradients [count, D], rounded, to rows that lie `row` elements apart. */
static inline void give_rows(const task *of, const float *gradient, number *to, i64 row, i64 count)
{
    for (i64 t = 0; t < count; t++)
        narrow_all(gradient + t * of->D, to + t * row, of->D);
}

/* The same of tokens from `first` on, brought back through what made them of the rows. */
static inline void give_turned(const task *of, const float *gradient, number *to, i64 row, i64 first,
                               i64 count, const number *made, const float *inverse)
{
    i64 D = of->D;
    for (i64 t = first; t < first + count; t++, gradient += D) {
        const number *was = made + t * of->even;
        float left[D], back[D], along = 0.0f;
        /* Turning keeps products, so the part along the result is found before it is turned back. */
        if (of->scaled) {
#pragma omp simd reduction(+ : along)
            for (i64 d = 0; d < D; d++)
                along += gradient[d] * wide(was[d]);
            along /= (float)D;
        }
#pragma omp simd
        for (i64 d = 0; d < D; d++)
            left[d] = inverse[t] * (gradient[d] - wide(was[d]) * along);
        if (of->own)
            turn(left, back, of->own + t * D, of->others + t * D, 1, D);
        give_rows(of, of->own ? back : left, to + t * row, row, 1);
    }
}

/* The rows as they lie, or if their channels are odd copies that end with a 0. */
static inline rows even_rows(const task *of, const number *from, i64 row, number *room)
{
    if (of->even == of->D)
        return (rows){from, row};
    for (i64 t = 0; t < of->T; t++) {
        memcpy(room + t * of->even, from + t * row, (size_t)of->D * sizeof(number));
        room[t * of->even + of->D] = 0;
    }
    return (rows){room, of->even};
}
