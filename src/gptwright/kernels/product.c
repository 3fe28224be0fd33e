/* The products of a linear layer and of its gradients, all threads at work on one.
 *
 * A line that one core has written costs another as much as one from main memory, so threads share a product
 * by rows, as they share all that lies between two products: tokens stay with their core. Only where a weight
 * is more to read than the tokens they share columns. Each packs for itself what it needs, a weight rounded
 * to bfloat16 on the way, and no copy of one is kept. Every sum is taken in the same order whatever the
 * number of threads.
 *
 * Shapes: M rows (tokens), I inputs and O outputs of a layer.
 */
#include "product.h"

/* What a core packs at a time, so that its second cache holds it: terms of a panel, and for `linear_weight`
 * terms, which are tokens, and inputs. */
enum { TERMS = 3072, TOKENS = 1024, INPUTS = 6 * WIDTH };

/* Fewer multiplications are done before a second thread has begun. */
#define SHARED_PRODUCT(M, I, O) SHARED((M) * (I) * (O) / 64)

/* Columns of each panel of N: as alike as vectors allow, because the sums of a narrow tile wait for each
 * other. */
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

/* A product of a left operand [M, K] and N columns: rows of `right` if its terms lie side by side, else its
 * columns. */
typedef struct {
    lefts left;
    source right;
    int side_by_side;
    const float *bias;
    bf16 *to;
    i64 to_row, M, N, K;
} task;

/* Tiles [begin, end) of rows times the columns of the panel that begins at n, into bfloat16.
 *
 * A panel with too many terms is packed and multiplied in parts, whose sums meet in `sums` [rows, WIDTH]. */
static void multiply_panel(const task *of, i64 n, i64 columns, i64 begin, i64 end, uint32_t *panel,
                           float *sums)
{
    i64 size = of->right.is_wide ? sizeof(float) : sizeof(bf16), last = least(end * ROWS, of->M);
    for (i64 k = 0; k < of->K; k += TERMS) {
        i64 terms = least(TERMS, of->K - k), ends = k + terms == of->K;
        source right = of->right;
        right.at = (const char *)right.at + (of->side_by_side ? n * right.row + k : k * right.row + n) * size;
        if (of->side_by_side)
            pack_columns(right, panel, terms, columns);
        else
            pack_rows(right, panel, WIDTH, terms, columns);
        for (i64 m = begin * ROWS; m < last; m += ROWS) {
            lefts left = of->left;
            bf16 *out = of->to + m * of->to_row + n;
            float *own = sums + (m - begin * ROWS) * WIDTH;
            i64 rows = least(ROWS, of->M - m);
            left.at += m * left.row + k / 2;
            if (of->K <= TERMS) {
                tile(rows, left, panel, of->bias ? of->bias + n : NULL, (terms + 1) / 2,
                     (target){out, of->to_row, NARROWED}, columns);
                continue;
            }
            tile(rows, left, panel, of->bias && !k ? of->bias + n : NULL, (terms + 1) / 2,
                 (target){own, WIDTH, k ? ADDED : PUT}, columns);
            for (i64 r = 0; ends && r < rows; r++)
                narrow_all(own + r * WIDTH, out + r * of->to_row, columns);
        }
    }
}

/* This thread's share. */
static void multiply(const task *of)
{
    i64 me = omp_get_thread_num(), all = omp_get_num_threads(), width = panel_width(of->N);
    i64 tiles = multiple(of->M, ROWS) / ROWS, panels = multiple(of->N, width) / width;
    i64 by_rows = 2 * of->N * of->K <= of->M * (of->N + of->K);
    i64 pairs = (least(of->K, TERMS) + 1) / 2;
    i64 summed = of->K > TERMS ? (by_rows ? tiles / all + 1 : tiles) * ROWS : 0;
    uint32_t *panel = own_room((size_t)((pairs + summed) * WIDTH) * sizeof(uint32_t));
    float *sums = (float *)(panel + pairs * WIDTH);
    /* Of all tiles, those of a panel together; or of each panel those of some rows. */
    i64 begin = tiles * panels * me / all, end = tiles * panels * (me + 1) / all;
    for (i64 p = by_rows ? 0 : begin / tiles; p < panels && (by_rows || p * tiles < end); p++) {
        i64 first = by_rows ? tiles * me / all : begin - p * tiles;
        i64 last = by_rows ? tiles * (me + 1) / all : end - p * tiles;
        i64 n = p * width, columns = least(width, of->N - n);
        multiply_panel(of, n, columns, first < 0 ? 0 : first, least(last, tiles), panel, sums);
    }
}

/* Whether these products are the quickest this CPU has: it has AVX-512's instruction for bfloat16, but not
 * the matrix registers (AMX), which torch uses. */
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
    task of = {{(const two *)x, I / 2, 1}, {w, I, 1}, 1, bias, y, y_row, M, O, I};
#pragma omp parallel num_threads(threads) if (parallel : SHARED_PRODUCT(M, I, O))
    multiply(&of);
}

/* dx [M, I] = dy [M, O] times w [O, I]; rows of dy begin dy_row elements apart, an even number. */
void linear_input(const bf16 *dy, const float *w, bf16 *dx, i64 M, i64 I, i64 O, i64 dy_row, int threads)
{
    task of = {{(const two *)dy, dy_row / 2, 1}, {w, I, 1}, 0, NULL, dx, I, M, I, O};
#pragma omp parallel num_threads(threads) if (parallel : SHARED_PRODUCT(M, I, O))
    multiply(&of);
}

/* dw [O, I] = the transpose of dy [M, O] times x [M, I], or that added to it. */
void linear_weight(const bf16 *dy, const bf16 *x, float *dw, i64 M, i64 I, i64 O, i64 dy_row, int added,
                   int threads)
{
    i64 tiles = multiple(O, ROWS) / ROWS, pairs_at_most = (least(M, TOKENS) + 1) / 2;
#pragma omp parallel num_threads(threads) if (parallel : SHARED_PRODUCT(M, I, O))
    {
        i64 me = omp_get_thread_num(), all = omp_get_num_threads();
        i64 begin = tiles * me / all * ROWS, end = least(tiles * (me + 1) / all * ROWS, O);
        uint32_t *left = own_room((size_t)(pairs_at_most * (TALL + INPUTS)) * sizeof(uint32_t));
        uint32_t *right = left + pairs_at_most * TALL;
        for (i64 m = 0; m < M; m += TOKENS)
            for (i64 i = 0; i < I; i += INPUTS) {
                i64 terms = least(TOKENS, M - m), pairs = (terms + 1) / 2, inputs = least(INPUTS, I - i);
                for (i64 n = 0; n < inputs; n += WIDTH)
                    pack_rows((source){x + m * I + i + n, I, 0}, right + n * pairs, WIDTH, terms,
                              least(WIDTH, inputs - n));
                for (i64 o = begin; o < end; o += TALL) {
                    i64 tall = least(TALL, end - o);
                    pack_rows((source){dy + m * dy_row + o, dy_row, 0}, left, TALL, terms, tall);
                    for (i64 n = 0; n < inputs; n += WIDTH)
                        for (i64 r = 0; r < tall; r += ROWS)
                            tile(least(ROWS, tall - r), (lefts){left + r, 1, TALL}, right + n * pairs, NULL,
                                 pairs, (target){dw + (o + r) * I + i + n, I, added || m ? ADDED : PUT},
                                 least(WIDTH, inputs - n));
                }
            }
    }
}
