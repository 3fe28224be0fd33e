/* The products of a linear layer and of its gradients, all threads at work on one.
 *
 * Threads share a product's tiles evenly and pack the panels that they need, so a weight is rounded to bfloat16
 * where it is read and no copy of it is kept. Every sum is taken in the same order whatever the number of
 * threads.
 *
 * Shapes: M rows (tokens), I inputs and O outputs of a layer.
 */
#include "product.h"

/* What is multiplied in one pass of `linear_weight`: so many terms, which are tokens, and rows. */
enum { TERMS = 2048, OUTPUTS = 32 * TALL };

/* Fewer multiplications are done before a second thread has begun. */
#define SHARED_PRODUCT(M, I, O) SHARED((M) * (I) * (O) / 64)

/* Columns of each panel of N: as alike as vectors allow, because the sums of a narrow tile wait for each other. */
static inline i64 panel_width(i64 N)
{
    i64 vectors = multiple(N, LANES) / LANES, panels = multiple(vectors, VECTORS) / VECTORS;
    return multiple(vectors, panels) / panels * LANES;
}

#ifdef __AVX512BF16__

static inline __attribute__((always_inline)) void tile_of(int rows, int vectors, lefts left,
                                                          const uint32_t *panel, const float *bias, i64 pairs,
                                                          target to, i64 columns)
{
    __m512 sum[ROWS][VECTORS];
    __mmask16 last = (__mmask16)((1u << (columns - (vectors - 1) * LANES)) - 1);
    for (int v = 0; v < vectors; v++) {
        __mmask16 here = v == vectors - 1 ? last : 0xffff;
        __m512 begin = bias ? _mm512_maskz_loadu_ps(here, bias + v * LANES) : _mm512_setzero_ps();
        for (int r = 0; r < rows; r++)
            sum[r][v] = begin;
    }
    for (i64 p = 0; p < pairs; p++) {
        __m512bh right[VECTORS];
        for (int v = 0; v < vectors; v++)
            right[v] = (__m512bh)_mm512_loadu_si512(panel + p * WIDTH + v * LANES);
        for (int r = 0; r < rows; r++) {
            __m512bh both = (__m512bh)_mm512_set1_epi32((int)left.at[r * left.row + p * left.pair]);
            for (int v = 0; v < vectors; v++)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], both, right[v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            __mmask16 here = v == vectors - 1 ? last : 0xffff;
            i64 place = r * to.row + v * LANES;
            float *wide_to = (float *)to.at + place;
            if (to.how == NARROWED)
                _mm256_mask_storeu_epi16((bf16 *)to.at + place, here, (__m256i)_mm512_cvtneps_pbh(sum[r][v]));
            else if (to.how == PUT)
                _mm512_mask_storeu_ps(wide_to, here, sum[r][v]);
            else
                _mm512_mask_storeu_ps(wide_to, here,
                                      _mm512_add_ps(sum[r][v], _mm512_maskz_loadu_ps(here, wide_to)));
        }
}

#else

static inline __attribute__((always_inline)) void tile_of(int rows, int vectors, lefts left,
                                                          const uint32_t *panel, const float *bias, i64 pairs,
                                                          target to, i64 columns)
{
    float sum[ROWS][WIDTH] = {{0.0f}};
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < vectors * LANES; c++)
            sum[r][c] = bias && c < columns ? bias[c] : 0.0f;
    for (i64 p = 0; p < pairs; p++)
        for (int r = 0; r < rows; r++) {
            uint32_t both = left.at[r * left.row + p * left.pair];
            float even = wide((bf16)both), odd = wide((bf16)(both >> 16));
            const uint32_t *right = panel + p * WIDTH;
#pragma omp simd
            for (int c = 0; c < vectors * LANES; c++)
                sum[r][c] += even * wide((bf16)right[c]) + odd * wide((bf16)(right[c] >> 16));
        }
    for (int r = 0; r < rows; r++)
        for (i64 c = 0; c < columns; c++) {
            i64 place = r * to.row + c;
            if (to.how == NARROWED)
                ((bf16 *)to.at)[place] = narrow(sum[r][c]);
            else
                ((float *)to.at)[place] = sum[r][c] + (to.how == ADDED ? ((float *)to.at)[place] : 0.0f);
        }
}

#endif

void tile(i64 rows, lefts left, const uint32_t *panel, const float *bias, i64 pairs, target to, i64 columns)
{
#define SIZED(R, V)                                                                                          \
    case (R) * 8 + (V): tile_of(R, V, left, panel, bias, pairs, to, columns); break;
#define EACH(R) SIZED(R, 1) SIZED(R, 2) SIZED(R, 3) SIZED(R, 4)
    switch (rows * 8 + multiple(columns, LANES) / LANES) {
        EACH(1) EACH(2) EACH(3) EACH(4) EACH(5) EACH(6)
    }
#undef EACH
#undef SIZED
}

/* This thread's share of a product of a left operand [M, K] and N columns, whose terms lie side by side in
 * `right` or are its rows. Panels of TALL rows lie packed at left.at, or nothing is packed. */
static void share(lefts left, int packed, source right, int side_by_side, const float *bias, target to, i64 M,
                  i64 N, i64 K)
{
    i64 me = omp_get_thread_num(), all = omp_get_num_threads(), pairs = (K + 1) / 2, width = panel_width(N);
    i64 tiles = multiple(M, ROWS) / ROWS, total = multiple(N, width) / width * tiles;
    i64 size_in = right.is_wide ? sizeof(float) : sizeof(bf16);
    i64 size_out = to.how == NARROWED ? sizeof(bf16) : sizeof(float);
    uint32_t *panel = own_room((size_t)(pairs * WIDTH) * sizeof(uint32_t));
    for (i64 at = total * me / all, has = -1; at < total * (me + 1) / all; at++) {
        i64 n = at / tiles * width, m = at % tiles * ROWS, columns = least(width, N - n);
        if (has != n) {
            source here = right;
            here.at = (const char *)right.at + n * (side_by_side ? right.row : 1) * size_in;
            if (side_by_side)
                pack_columns(here, panel, K, columns);
            else
                pack_rows(here, panel, WIDTH, K, columns);
            has = n;
        }
        lefts rows = left;
        rows.at += packed ? m / TALL * TALL * pairs + m % TALL : m * left.row;
        target here = to;
        here.at = (char *)to.at + (m * to.row + n) * size_out;
        tile(least(ROWS, M - m), rows, panel, bias ? bias + n : NULL, pairs, here, columns);
    }
}

/* Whether these products are the quickest this CPU has: it has AVX-512's instruction for bfloat16, but not the
 * matrix registers (AMX), which torch uses. */
int multiplies(void)
{
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
    return 1;
#else
    return 0;
#endif
}

/* y [M, O] = x [M, I] times the transpose of w [O, I], plus bias [O] unless null. I is even; rows of y begin
 * y_row elements apart. */
void linear(const bf16 *x, const float *w, const float *bias, bf16 *y, i64 M, i64 I, i64 O, i64 y_row,
            int threads)
{
#pragma omp parallel num_threads(threads) if (parallel : SHARED_PRODUCT(M, I, O))
    share((lefts){(const uint32_t *)x, I / 2, 1}, 0, (source){w, I, 1}, 1, bias, (target){y, y_row, NARROWED}, M,
          O, I);
}

/* dx [M, I] = dy [M, O] times w [O, I]; rows of dy begin dy_row elements apart, an even number. */
void linear_input(const bf16 *dy, const float *w, bf16 *dx, i64 M, i64 I, i64 O, i64 dy_row, int threads)
{
#pragma omp parallel num_threads(threads) if (parallel : SHARED_PRODUCT(M, I, O))
    share((lefts){(const uint32_t *)dy, dy_row / 2, 1}, 0, (source){w, I, 1}, 0, NULL,
          (target){dx, I, NARROWED}, M, I, O);
}

/* dw [O, I] = the transpose of dy [M, O] times x [M, I], or that added to it. */
void linear_weight(const bf16 *dy, const bf16 *x, float *dw, i64 M, i64 I, i64 O, i64 dy_row, int added,
                   int threads)
{
    size_t room = (size_t)multiple(least(M, TERMS), 2) / 2 * (size_t)multiple(least(O, OUTPUTS), TALL);
    uint32_t *left = aligned_alloc(64, room * sizeof(uint32_t));
#pragma omp parallel num_threads(threads) if (parallel : SHARED_PRODUCT(M, I, O))
    for (i64 o = 0; o < O; o += OUTPUTS)
        for (i64 m = 0; m < M; m += TERMS) {
            i64 rows = least(OUTPUTS, O - o), terms = least(TERMS, M - m);
#pragma omp for schedule(static)
            for (i64 r = 0; r < rows; r += TALL)
                pack_rows((source){dy + m * dy_row + o + r, dy_row, 0}, left + r * ((terms + 1) / 2), TALL, terms,
                          least(TALL, rows - r));
            share((lefts){left, 1, TALL}, 1, (source){x + m * I, I, 0}, 0, NULL,
                  (target){dw + o * I, I, added || m ? ADDED : PUT}, rows, I, terms);
#pragma omp barrier
        }
    free(left);
}
