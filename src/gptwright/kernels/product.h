/* A tile of a product of bfloat16 matrices, and how its operands are laid out.
 *
 * A product of M rows, N columns and K terms takes its terms in pairs, as the CPU's instruction does: 32 bits
 * hold two neighbours in K. The right operand is packed into panels [K / 2, WIDTH] of pairs, in which up to
 * 64 columns lie side by side; a panel stays in a core's second cache while the left operand passes by it,
 * ROWS rows at a time. Sums are float32 and stay in registers from the first term to the last (Goto and van
 * de Geijn 2008, Anatomy of High-Performance Matrix Multiplication).
 *
 * The left operand is read where it lies if neighbours in K lie side by side; if not it is packed too, into
 * panels [K / 2, TALL], or for matrix registers, which want a row's pairs side by side, into rows [K / 2].
 *
 * Without AVX-512's instruction for bfloat16 the same is done in float32, which is slower.
 */
#pragma once

#include "numbers.h"

#include <stdlib.h>

#if defined(__AVX512BF16__) && defined(__AMX_BF16__)
#define MATRIX_REGISTERS
/* Rows of a tile, rows that are packed together, and pairs of terms that are multiplied together. */
enum { ROWS = 32, TALL = ROWS, STEP = 16 };
#else
enum { ROWS = 6, TALL = 8 * ROWS, STEP = 1 };
#endif
enum { LANES = 16, VECTORS = 4, WIDTH = LANES * VECTORS };

/* What is done with a tile's sums: rounded to bfloat16, put as they are, or added to what is there. */
typedef enum { NARROWED, PUT, ADDED } ending;

/* Two bfloat16 numbers that lie side by side, read as one. */
typedef uint32_t __attribute__((may_alias)) two;

/* Where a left operand's pair of row r and terms 2p, 2p + 1 lies: at[r * row + p * pair]. */
typedef struct {
    const two *at;
    i64 row, pair;
} lefts;

/* Where sums go, elements from one row to the next, and how. */
typedef struct {
    void *at;
    i64 row;
    ending how;
} target;

/* A matrix that panels are made of, in bfloat16 or in float32, which is rounded; elements from row to row. */
typedef struct {
    const void *at;
    i64 row;
    int is_wide;
} source;

static inline uint32_t pair_of(bf16 even, bf16 odd) { return even | (uint32_t)odd << 16; }

/* Pairs that a panel of so many terms has. Those beyond its last term are 0. */
static inline i64 pairs_of(i64 terms) { return multiple((terms + 1) / 2, STEP); }

/* Up to ROWS rows of a left operand times up to WIDTH columns of a panel, and bias unless null. A thread
 * begins tiles before its first one and ends them after its last. */
void tile(i64 rows, lefts left, const uint32_t *panel, const float *bias, i64 pairs, target to, i64 columns);
void begin_tiles(void);
void end_tiles(void);

/* Those pairs, in rows of `stride`. */
static inline void fill(uint32_t *panel, i64 stride, i64 terms)
{
    i64 filled = (terms + 1) / 2;
    memset(panel + filled * stride, 0, (size_t)((pairs_of(terms) - filled) * stride) * sizeof(*panel));
}

/* A panel [pairs_of(terms), stride] of `columns` columns of the source, whose rows are the terms. What lies
 * beside the columns is left as it is: it meets only sums that nobody asks for. */
static inline void pack_rows(source from, uint32_t *panel, i64 stride, i64 terms, i64 columns)
{
    fill(panel, stride, terms);
    for (i64 k = 0; k < terms; k += 2) {
        uint32_t *to = panel + k / 2 * stride, kept = k + 1 < terms ? 0xffffffff : 0xffff;
        i64 one = k * from.row, other = k + 1 < terms ? one + from.row : one;
        if (from.is_wide) {
            const float *at = from.at;
#pragma omp simd
            for (i64 c = 0; c < columns; c++)
                to[c] = pair_of(narrow(at[one + c]), narrow(at[other + c])) & kept;
        } else {
            const bf16 *at = from.at;
#pragma omp simd
            for (i64 c = 0; c < columns; c++)
                to[c] = pair_of(at[one + c], at[other + c]) & kept;
        }
    }
}

#ifdef __AVX512BF16__

/* 16 x 16 of 32 bits, their rows for columns. */
static inline void transpose(__m512i r[LANES])
{
    __m512i t[LANES];
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
    for (int j = 0; j < 4; j++) {
        __m512i a = _mm512_shuffle_i32x4(r[j], r[j + 4], 0x88);
        __m512i b = _mm512_shuffle_i32x4(r[j], r[j + 4], 0xdd);
        __m512i c = _mm512_shuffle_i32x4(r[j + 8], r[j + 12], 0x88);
        __m512i d = _mm512_shuffle_i32x4(r[j + 8], r[j + 12], 0xdd);
        t[j] = _mm512_shuffle_i32x4(a, c, 0x88);
        t[j + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        t[j + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        t[j + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    memcpy(r, t, sizeof(t));
}

/* A whole square of a panel: 16 columns, 16 pairs of terms. */
static inline void pack_square(source from, uint32_t *to, i64 column, i64 term)
{
    __m512i rows[LANES];
    for (int c = 0; c < LANES; c++) {
        i64 place = (column + c) * from.row + term;
        const float *at = (const float *)from.at + place;
        if (from.is_wide)
            rows[c] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(at + LANES), _mm512_loadu_ps(at));
        else
            rows[c] = _mm512_loadu_si512((const bf16 *)from.at + place);
    }
    transpose(rows);
    for (int p = 0; p < LANES; p++)
        _mm512_storeu_si512(to + p * WIDTH, rows[p]);
}

#endif

/* A pair of terms of a column; a term beyond the last is 0. */
static inline uint32_t pair_at(source from, i64 column, i64 term, i64 terms)
{
    i64 place = column * from.row + term, other = term + 1 < terms ? place + 1 : place;
    uint32_t kept = term + 1 < terms ? 0xffffffff : 0xffff;
    if (from.is_wide) {
        const float *at = from.at;
        return pair_of(narrow(at[place]), narrow(at[other])) & kept;
    }
    const bf16 *at = from.at;
    return pair_of(at[place], at[other]) & kept;
}

/* A panel [pairs_of(terms), WIDTH] of columns that are the source's rows, in which terms lie side by side. */
static inline void pack_columns(source from, uint32_t *panel, i64 terms, i64 columns)
{
    fill(panel, WIDTH, terms);
    for (i64 c = 0; c < columns; c += LANES)
        for (i64 k = 0; k < terms; k += 2 * LANES) {
            uint32_t *to = panel + k / 2 * WIDTH + c;
#ifdef __AVX512BF16__
            if (c + LANES <= columns && k + 2 * LANES <= terms) {
                pack_square(from, to, c, k);
                continue;
            }
#endif
            for (i64 p = 0; p < LANES && k + 2 * p < terms; p++)
                for (i64 j = 0; j < least(LANES, columns - c); j++)
                    to[p * WIDTH + j] = pair_at(from, c + j, k + 2 * p, terms);
        }
}

#ifdef MATRIX_REGISTERS

/* A left operand of bfloat16 whose rows are the source's columns, in rows [count, pairs_of(terms)]. */
static inline void pack_left(source from, uint32_t *to, i64 terms, i64 count)
{
    i64 pairs = pairs_of(terms);
    for (i64 r = 0; r < count; r += LANES)
        for (i64 k = 0; k < terms; k += 2 * LANES) {
            __m512i of_terms[LANES];
            __mmask16 here = (__mmask16)((1u << least(LANES, count - r)) - 1);
            const bf16 *at = (const bf16 *)from.at + k * from.row + r;
            for (i64 p = 0; p < LANES; p++, at += 2 * from.row) {
                __mmask16 even = k + 2 * p < terms ? here : 0, odd = k + 2 * p + 1 < terms ? here : 0;
                __m512i ones = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(even, at));
                __m512i others = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(odd, at + from.row));
                of_terms[p] = _mm512_or_si512(ones, _mm512_slli_epi32(others, 16));
            }
            transpose(of_terms);
            for (i64 c = 0; c < least(LANES, count - r); c++)
                _mm512_storeu_si512(to + (r + c) * pairs + k / 2, of_terms[c]);
        }
}

/* The operand from row r, a multiple of ROWS, and pair p on. */
static inline lefts packed_left(const uint32_t *at, i64 terms, i64 r, i64 p)
{
    i64 pairs = pairs_of(terms);
    return (lefts){at + r * pairs + p, pairs, 1};
}

#else

/* A left operand of bfloat16 whose rows are the source's columns, in panels [pairs_of(terms), TALL]. */
static inline void pack_left(source from, uint32_t *to, i64 terms, i64 count)
{
    for (i64 r = 0; r < count; r += TALL)
        pack_rows((source){(const bf16 *)from.at + r, from.row, 0}, to + r * pairs_of(terms), TALL, terms,
                  least(TALL, count - r));
}

/* The operand from row r, a multiple of ROWS, and pair p on. */
static inline lefts packed_left(const uint32_t *at, i64 terms, i64 r, i64 p)
{
    return (lefts){at + r / TALL * TALL * pairs_of(terms) + r % TALL + p * TALL, 1, TALL};
}

#endif

/* Room of a thread's own that stays its own; asking for more takes it anew. */
static inline void *own_room(size_t bytes)
{
    static _Thread_local void *room;
    static _Thread_local size_t size;
    if (size < bytes) {
        free(room);
        size = (bytes + 4095) / 4096 * 4096;
        room = aligned_alloc(4096, size);
    }
    return room;
}
