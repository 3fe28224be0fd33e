/* A tile of a product of matrices, and how its operands are laid out.
 *
 * A product of M rows, N columns and K terms takes its terms by words of 32 bits: one float32, or two
 * neighbours in K of bfloat16, as the CPU's instruction does. The right operand is packed into panels of
 * words [K / IN_WORD, WIDTH], in which up to WIDTH columns lie side by side; a panel stays in a core's second
 * cache while the left operand passes by it, ROWS rows at a time. Sums are float32 and stay in registers from
 * the first term to the last (Goto and van de Geijn 2008, Anatomy of High-Performance Matrix Multiplication).
 *
 * The left operand is read where it lies if neighbours in K lie side by side; if not it is packed too, into
 * panels [K / IN_WORD, TALL], or for matrix registers, which want a row's words side by side, into rows
 * [K / IN_WORD].
 *
 * Without AVX-512's instruction for bfloat16 two of it are multiplied in float32, which is slower.
 */
#pragma once

#include "numbers.h"

#include <stdlib.h>

#if defined(BFLOAT16_INSTRUCTIONS) && defined(__AMX_BF16__)
#define MATRIX_REGISTERS
/* Rows of a tile, rows that are packed together, and words of terms that are multiplied together. */
enum { ROWS = 32, TALL = ROWS, STEP = 16 };
#else
enum { ROWS = 6, TALL = 8 * ROWS, STEP = 1 };
#endif

/* Sums of a vector, and vectors of a row of sums: of AVX2's 16 registers twelve hold those of ROWS rows. */
#if defined(FLOAT32) && !defined(__AVX512F__)
enum { LANES = 8, VECTORS = 2 };
#else
enum { LANES = 16, VECTORS = 4 };
#endif
enum { WIDTH = LANES * VECTORS };

/* Numbers that lie side by side, read as one. */
#ifdef FLOAT32
typedef float word;
#else
typedef uint32_t __attribute__((may_alias)) word;
#endif
enum { IN_WORD = sizeof(word) / sizeof(number) };

/* What is done with a tile's sums: rounded to a number, put as they are, or added to what is there. */
typedef enum { NARROWED, PUT, ADDED } ending;

/* Where a left operand's word w of row r lies: at[r * row + w * next]. */
typedef struct {
    const word *at;
    i64 row, next;
} lefts;

/* Where sums go, elements from one row to the next, and how. */
typedef struct {
    void *at;
    i64 row;
    ending how;
} target;

/* A matrix that panels are made of, of numbers or in float32, which is rounded; elements from row to row. */
typedef struct {
    const void *at;
    i64 row;
    int is_wide;
} source;

/* The word of a term and of the next one, of which only what `kept` says is there. */
static inline word word_of(number one, number other, uint32_t kept)
{
#ifdef FLOAT32
    return one;
#else
    return (one | (uint32_t)other << 16) & kept;
#endif
}

/* Words that so many terms fill, and that a panel of them has; those beyond are 0. */
static inline i64 words_of(i64 terms) { return multiple(terms, IN_WORD) / IN_WORD; }

static inline i64 panel_words(i64 terms) { return multiple(words_of(terms), STEP); }

/* Up to ROWS rows of a left operand times up to WIDTH columns of a panel, and bias unless null. A thread
 * begins tiles before its first one and ends them after its last. */
void tile(i64 rows, lefts left, const word *panel, const float *bias, i64 words, target to, i64 columns);
void begin_tiles(void);
void end_tiles(void);

/* Those words, in rows of `stride`. */
static inline void fill(word *panel, i64 stride, i64 terms)
{
    i64 filled = words_of(terms);
    memset(panel + filled * stride, 0, (size_t)((panel_words(terms) - filled) * stride) * sizeof(*panel));
}

/* Rows of a source are fetched so many before they are packed: a CPU does not by itself if they lie far
 * apart. */
enum { AHEAD = 16 };

/* A panel [panel_words(terms), stride] of `columns` columns of the source, whose rows are the terms. What
 * lies beside the columns is left as it is: it meets only sums that nobody asks for. */
static inline void pack_rows(source from, word *panel, i64 stride, i64 terms, i64 columns)
{
    fill(panel, stride, terms);
    for (i64 k = 0; k < terms; k += IN_WORD) {
        word *to = panel + k / IN_WORD * stride;
        uint32_t kept = k + 1 < terms ? 0xffffffff : 0xffff;
        i64 one = k * from.row, other = k + 1 < terms ? one + from.row : one;
        if (from.is_wide) {
            const float *at = from.at;
#pragma omp simd
            for (i64 c = 0; c < columns; c++)
                to[c] = word_of(narrow(at[one + c]), narrow(at[other + c]), kept);
        } else {
            const number *at = from.at;
            __builtin_prefetch(at + one + AHEAD * from.row);
#pragma omp simd
            for (i64 c = 0; c < columns; c++)
                to[c] = word_of(at[one + c], at[other + c], kept);
        }
    }
}

#ifdef FLOAT32

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));
/* The same where it lies in memory. */
typedef float lying __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t places __attribute__((vector_size(LANES * sizeof(int32_t))));

/* A square of vectors, its rows for columns: rows half a square apart are interleaved until each element's
 * row and column have changed places. */
static inline void transpose(vector r[LANES])
{
    places low, high;
    for (int i = 0; i < LANES; i++) {
        low[i] = i / 2 + i % 2 * LANES;
        high[i] = low[i] + LANES / 2;
    }
    for (int done = 1; done < LANES; done *= 2) {
        vector t[LANES];
        for (int i = 0; i < LANES; i += 2) {
            t[i] = __builtin_shuffle(r[i / 2], r[(i + LANES) / 2], low);
            t[i + 1] = __builtin_shuffle(r[i / 2], r[(i + LANES) / 2], high);
        }
        memcpy(r, t, sizeof(t));
    }
}

/* A whole square of a panel: LANES columns and as many words of terms. */
static inline void pack_square(source from, word *to, i64 column, i64 term)
{
    vector rows[LANES];
    for (int c = 0; c < LANES; c++)
        rows[c] = *(const lying *)((const number *)from.at + (column + c) * from.row + term);
    transpose(rows);
    for (int w = 0; w < LANES; w++)
        *(lying *)(to + w * WIDTH) = rows[w];
}

#elif defined(BFLOAT16_INSTRUCTIONS)

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

/* A whole square of a panel: LANES columns and as many words of terms. */
static inline void pack_square(source from, word *to, i64 column, i64 term)
{
    __m512i rows[LANES];
    for (int c = 0; c < LANES; c++) {
        i64 place = (column + c) * from.row + term;
        const float *at = (const float *)from.at + place;
        if (from.is_wide)
            rows[c] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(at + LANES), _mm512_loadu_ps(at));
        else
            rows[c] = _mm512_loadu_si512((const number *)from.at + place);
    }
    transpose(rows);
    for (int p = 0; p < LANES; p++)
        _mm512_storeu_si512(to + p * WIDTH, rows[p]);
}

#endif

/* A word of a column's terms; a term beyond the last is 0. */
static inline word word_at(source from, i64 column, i64 term, i64 terms)
{
    i64 place = column * from.row + term, other = term + 1 < terms ? place + 1 : place;
    uint32_t kept = term + 1 < terms ? 0xffffffff : 0xffff;
    if (from.is_wide) {
        const float *at = from.at;
        return word_of(narrow(at[place]), narrow(at[other]), kept);
    }
    const number *at = from.at;
    return word_of(at[place], at[other], kept);
}

/* A panel [panel_words(terms), WIDTH] of columns that are the source's rows, in which terms lie side by
 * side. */
static inline void pack_columns(source from, word *panel, i64 terms, i64 columns)
{
    fill(panel, WIDTH, terms);
    for (i64 c = 0; c < columns; c += LANES)
        for (i64 k = 0; k < terms; k += IN_WORD * LANES) {
            word *to = panel + k / IN_WORD * WIDTH + c;
#if defined(FLOAT32) || defined(BFLOAT16_INSTRUCTIONS)
            if (c + LANES <= columns && k + IN_WORD * LANES <= terms) {
                pack_square(from, to, c, k);
                continue;
            }
#endif
            for (i64 w = 0; w < LANES && k + IN_WORD * w < terms; w++)
                for (i64 j = 0; j < least(LANES, columns - c); j++)
                    to[w * WIDTH + j] = word_at(from, c + j, k + IN_WORD * w, terms);
        }
}

#ifdef MATRIX_REGISTERS

/* A left operand of bfloat16 whose rows are the source's columns, in rows [count, panel_words(terms)]. */
static inline void pack_left(source from, word *to, i64 terms, i64 count)
{
    i64 words = panel_words(terms);
    for (i64 r = 0; r < count; r += LANES)
        for (i64 k = 0; k < terms; k += 2 * LANES) {
            __m512i of_terms[LANES];
            __mmask16 here = (__mmask16)((1u << least(LANES, count - r)) - 1);
            const number *at = (const number *)from.at + k * from.row + r;
            for (i64 p = 0; p < LANES; p++, at += 2 * from.row) {
                __mmask16 even = k + 2 * p < terms ? here : 0, odd = k + 2 * p + 1 < terms ? here : 0;
                __m512i ones = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(even, at));
                __m512i others = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(odd, at + from.row));
                of_terms[p] = _mm512_or_si512(ones, _mm512_slli_epi32(others, 16));
            }
            transpose(of_terms);
            for (i64 c = 0; c < least(LANES, count - r); c++)
                _mm512_storeu_si512(to + (r + c) * words + k / 2, of_terms[c]);
        }
}

/* The operand from row r, a multiple of ROWS, and word w on. */
static inline lefts packed_left(const word *at, i64 terms, i64 r, i64 w)
{
    i64 words = panel_words(terms);
    return (lefts){at + r * words + w, words, 1};
}

#elif defined(FLOAT32)

/* A left operand whose rows are the source's columns, in panels [terms, ROWS]. */
static inline void pack_left(source from, word *to, i64 terms, i64 count)
{
    i64 whole = count / ROWS * ROWS;
    for (i64 k = 0; k < terms; k++, to += ROWS) {
        const number *at = (const number *)from.at + k * from.row;
        for (i64 r = 0; r < count; r += 64 / (i64)sizeof(number))
            __builtin_prefetch(at + AHEAD * from.row + r);
        for (i64 r = 0; r < whole; r += ROWS)
            memcpy(to + r * terms, at + r, ROWS * sizeof(word));
        if (whole < count)
            memcpy(to + whole * terms, at + whole, (size_t)(count - whole) * sizeof(word));
    }
}

/* The operand from row r, a multiple of ROWS, and word w on. */
static inline lefts packed_left(const word *at, i64 terms, i64 r, i64 w)
{
    return (lefts){at + r * terms + w * ROWS, 1, ROWS};
}

#else

/* A left operand of numbers whose rows are the source's columns, in panels [panel_words(terms), TALL]. */
static inline void pack_left(source from, word *to, i64 terms, i64 count)
{
    for (i64 r = 0; r < count; r += TALL)
        pack_rows((source){(const number *)from.at + r, from.row, 0}, to + r * panel_words(terms), TALL,
                  terms, least(TALL, count - r));
}

/* The operand from row r, a multiple of ROWS, and word w on. */
static inline lefts packed_left(const word *at, i64 terms, i64 r, i64 w)
{
    return (lefts){at + r / TALL * TALL * panel_words(terms) + r % TALL + w * TALL, 1, TALL};
}

#endif

/* Room of a thread's own that stays its own; asking for more takes it anew. Null where the system refuses. */
static inline void *own_room(size_t bytes)
{
    static _Thread_local void *room;
    static _Thread_local size_t size;
    if (size < bytes) {
        free(room);
        size = (bytes + 4095) / 4096 * 4096;
        room = aligned_alloc(4096, size);
        if (!room)
            size = 0;
    }
    return room;
}
