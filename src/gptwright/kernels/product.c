/* The products of a linear layer and of its gradients, all threads at work on one.
 *
 * A line that one core has written costs another as much as one from main memory, so threads share a product
 * by rows, as they share all that lies between two products: tokens stay with their core. Only where a weight
 * is more to read than the tokens they share columns. Each packs for itself what it needs, a weight rounded
 * to numbers on the way, and no copy of one is kept. Every sum is taken in the same order whatever the
 * number of threads.
 *
 * Shapes: M rows (tokens), I inputs and O outputs of a layer.
 */
#include "product.h"

/* What a core packs at a time, so that its second cache holds it: terms of a panel, words of several panels
 * that a left tile meets, and for `linear_weight` terms, which are tokens, and inputs. A core with matrix
 * registers has 2 MiB, one with an instruction for bfloat16 has 1, of which one long panel takes a third, and
 * others may have half of that. NEAR words of a left operand meet a panel while the first cache holds it; where
 * they are fewer than a tile's, each tile meets all panels. */
#ifdef FLOAT32
enum { TERMS = 1536, PACKED = 1 << 16, NEAR = 1 << 14, TOKENS = 256, INPUTS = 256 };
#elif defined(MATRIX_REGISTERS)
enum { TERMS = 3072, PACKED = 1 << 18, NEAR = 0, TOKENS = 512, INPUTS = 12 * WIDTH };
#else
enum { TERMS = 3072, PACKED = 0, NEAR = 0, TOKENS = 1024, INPUTS = 6 * WIDTH };
#endif

/* Fewer multiplications are done before a second thread has begun. */
#define SHARED_PRODUCT(M, I, O) SHARED((M) * (I) * (O) / 64)

/* Columns of each panel of N: as alike as vectors allow, because the sums of a narrow tile wait for each
 * other. */
static inline i64 panel_width(i64 N)
{
    i64 vectors = multiple(N, LANES) / LANES, panels = multiple(vectors, VECTORS) / VECTORS;
    return multiple(vectors, panels) / panels * LANES;
}

/* A product of a left operand [M, K] and N columns: rows of `right` if its terms lie side by side, else its
 * columns. */
typedef struct {
    lefts left;
    source right;
    int side_by_side;
    const float *bias;
    number *to;
    i64 to_row, M, N, K;
} task;

/* Tiles [begin, end) of rows times panels [p, until) of `width` columns, of which the last may have fewer. */
typedef struct {
    i64 p, until, width, begin, end;
} part;

/* Terms that are multiplied at a time: about equal parts of all. */
static inline i64 terms_of(i64 K)
{
    i64 parts = multiple(K, TERMS) / TERMS;
    return multiple(multiple(K, parts) / parts, 2 * LANES);
}

/* Elements of a panel, and of the sums of so many tiles where terms are multiplied in parts. */
static inline i64 panel_room(i64 K) { return panel_words(least(K, terms_of(K))) * WIDTH; }

static inline i64 sums_room(i64 K, i64 tiles) { return K > terms_of(K) ? tiles * ROWS * WIDTH : 0; }

/* Panels that are packed together. */
static inline i64 group_of(i64 K)
{
    i64 held = PACKED / panel_room(K);
    return held ? held : 1;
}

/* Rows that are near together. */
static inline i64 rows_near(i64 K)
{
    i64 tiles = NEAR / (words_of(least(K, terms_of(K))) * ROWS);
    return (tiles ? tiles : 1) * ROWS;
}

/* The panels of a part, of terms from k on. */
static void pack_part(const task *of, part at, i64 k, i64 terms, word *panels)
{
    i64 size = of->right.is_wide ? sizeof(float) : sizeof(number), row = of->right.row;
    for (i64 p = at.p; p < at.until; p++, panels += panel_room(of->K)) {
        i64 n = p * at.width, columns = least(at.width, of->N - n);
        i64 begin = of->side_by_side ? n * row + k : k * row + n;
        source right = {(const char *)of->right.at + begin * size, row, of->right.is_wide};
        if (of->side_by_side)
            pack_columns(right, panels, terms, columns);
        else
            pack_rows(right, panels, WIDTH, terms, columns);
    }
}

/* A tile of rows from m on, times a panel that begins with column n and term k, into numbers. If terms are
 * multiplied in parts, their sums meet in `sums`, rows of WIDTH, unless that is null. */
static inline void multiply_tile(const task *of, i64 m, i64 n, i64 k, i64 terms, i64 columns,
                                 const word *panel, float *sums)
{
    i64 rows = least(ROWS, of->M - m);
    lefts left = {of->left.at + m * of->left.row + k / IN_WORD, of->left.row, of->left.next};
    number *out = of->to + m * of->to_row + n;
    target whole = {out, of->to_row, NARROWED}, some = {sums, WIDTH, k ? ADDED : PUT};
    tile(rows, left, panel, of->bias && !k ? of->bias + n : NULL, words_of(terms), sums ? some : whole,
         columns);
    for (i64 r = 0; sums && k + terms == of->K && r < rows; r++)
        narrow_all(sums + r * WIDTH, out + r * of->to_row, columns);
}

/* A part of a product. `sums` is room for those of all its tiles. */
static void multiply_part(const task *of, part at, word *panels, float *sums)
{
    i64 last = least(at.end * ROWS, of->M), near = rows_near(of->K), together = terms_of(of->K);
    i64 kept = sums_room(of->K, at.end - at.begin);
    for (i64 k = 0; k < of->K; k += together) {
        i64 terms = least(together, of->K - k);
        pack_part(of, at, k, terms, panels);
        for (i64 first = at.begin * ROWS; first < last; first += near)
            for (i64 p = 0; p < at.until - at.p; p++) {
                i64 n = (at.p + p) * at.width, columns = least(at.width, of->N - n);
                for (i64 m = first; m < least(first + near, last); m += ROWS)
                    multiply_tile(of, m, n, k, terms, columns, panels + p * panel_room(of->K),
                                  kept ? sums + p * kept + (m - at.begin * ROWS) * WIDTH : NULL);
            }
    }
}

/* This thread's share; whether it had no room to work in. */
static int multiply(const task *of)
{
    i64 me = omp_get_thread_num(), all = omp_get_num_threads(), width = panel_width(of->N);
    i64 tiles = multiple(of->M, ROWS) / ROWS, panels = multiple(of->N, width) / width;
    i64 by_rows = IN_WORD * of->N * of->K <= of->M * (of->N + of->K);
    i64 group = group_of(of->K), kept = sums_room(of->K, by_rows ? tiles / all + 1 : tiles);
    word *packed = own_room((size_t)(group * (panel_room(of->K) + kept)) * sizeof(word));
    if (!packed)
        return 1;
    float *sums = (float *)(packed + group * panel_room(of->K));
    begin_tiles();
    if (by_rows)
        for (i64 p = 0; p < panels; p += group)
            multiply_part(of, (part){p, least(p + group, panels), width, tiles * me / all,
                                     tiles * (me + 1) / all}, packed, sums);
    else
        /* Of all tiles, those of a panel together: the first panel and the last may be another's too. */
        for (i64 at = tiles * panels * me / all, end = tiles * panels * (me + 1) / all, next; at < end;
             at = next) {
            i64 p = at / tiles, first = at % tiles, whole = first ? 0 : least(group, (end - at) / tiles);
            next = whole ? at + whole * tiles : least(end, (p + 1) * tiles);
            multiply_part(of, (part){p, p + (whole ? whole : 1), width, first,
                                     whole ? tiles : first + next - at}, packed, sums);
        }
    end_tiles();
    return 0;
}

/* Whether these products are the quickest this CPU has: it has an instruction for such numbers. */
int multiplies(void)
{
#if defined(BFLOAT16_INSTRUCTIONS) || (defined(FLOAT32) && defined(__FMA__))
    return 1;
#else
    return 0;
#endif
}

/* Each of these says whether a thread had no room to work in; what it was to make is then missing.
 *
 * y [M, O] = x [M, I] times the transpose of w [O, I], plus bias [O] unless null. Rows of x are whole words;
 * those of y begin y_row elements apart. */
int linear(const number *x, const float *w, const float *bias, number *y, i64 M, i64 I, i64 O, i64 y_row,
            int threads)
{
    task of = {{(const word *)x, I / IN_WORD, 1}, {w, I, 1}, 1, bias, y, y_row, M, O, I};
    int refused = 0;
#pragma omp parallel num_threads(threads) if (parallel : SHARED_PRODUCT(M, I, O)) reduction(|| : refused)
    refused = multiply(&of);
    return refused;
}

/* dx [M, I] = dy [M, O] times w [O, I]; rows of dy begin dy_row elements apart, whole words. */
int linear_input(const number *dy, const float *w, number *dx, i64 M, i64 I, i64 O, i64 dy_row, int threads)
{
    task of = {{(const word *)dy, dy_row / IN_WORD, 1}, {w, I, 1}, 0, NULL, dx, I, M, I, O};
    int refused = 0;
#pragma omp parallel num_threads(threads) if (parallel : SHARED_PRODUCT(M, I, O)) reduction(|| : refused)
    refused = multiply(&of);
    return refused;
}

/* What all threads of a weight's gradient know. */
typedef struct {
    const number *dy, *x;
    float *dw;
    i64 M, I, O, dy_row;
    int added;
} weight_task;

/* Into how many parts its inputs are split, a divisor of the threads: the fewest with which each thread has
 * two tiles of outputs. */
static inline i64 parts_of(i64 tiles, i64 panels, i64 threads)
{
    i64 parts = 1;
    for (i64 p = 1; p <= least(panels, threads) && tiles < 2 * threads / parts; p++)
        if (threads % p == 0)
            parts = p;
    return parts;
}

/* This thread's share: some tiles of outputs, and of the inputs all or a part. Whether it had no room. */
static int gather(const weight_task *of)
{
    i64 I = of->I, threads = omp_get_num_threads(), panels = multiple(I, WIDTH) / WIDTH;
    i64 tiles = multiple(of->O, ROWS) / ROWS, parts = parts_of(tiles, panels, threads), all = threads / parts;
    i64 me = omp_get_thread_num() / parts, part = omp_get_thread_num() % parts;
    i64 begin = tiles * me / all * ROWS, end = least(tiles * (me + 1) / all * ROWS, of->O);
    i64 first = panels * part / parts * WIDTH, last = least(panels * (part + 1) / parts * WIDTH, I);
    i64 words_at_most = panel_words(least(of->M, TOKENS));
    word *left = own_room((size_t)(words_at_most * (TALL + INPUTS)) * sizeof(word));
    if (!left)
        return 1;
    word *right = left + words_at_most * TALL;
    begin_tiles();
    for (i64 m = 0; m < of->M; m += TOKENS)
        for (i64 i = first; i < last; i += INPUTS) {
            i64 terms = least(TOKENS, of->M - m), words = panel_words(terms);
            i64 inputs = least(INPUTS, last - i);
            for (i64 n = 0; n < inputs; n += WIDTH)
                pack_rows((source){of->x + m * I + i + n, I, 0}, right + n * words, WIDTH, terms,
                          least(WIDTH, inputs - n));
            for (i64 o = begin; o < end; o += TALL) {
                i64 tall = least(TALL, end - o);
                pack_left((source){of->dy + m * of->dy_row + o, of->dy_row, 0}, left, terms, tall);
                for (i64 n = 0; n < inputs; n += WIDTH)
                    for (i64 r = 0; r < tall; r += ROWS) {
                        target to = {of->dw + (o + r) * I + i + n, I, of->added || m ? ADDED : PUT};
                        tile(least(ROWS, tall - r), packed_left(left, terms, r, 0), right + n * words, NULL,
                             words, to, least(WIDTH, inputs - n));
                    }
            }
        }
    end_tiles();
    return 0;
}

/* dw [O, I] = the transpose of dy [M, O] times x [M, I], or that added to it. */
int linear_weight(const number *dy, const number *x, float *dw, i64 M, i64 I, i64 O, i64 dy_row, int added,
                   int threads)
{
    weight_task of = {dy, x, dw, M, I, O, dy_row, added};
    int refused = 0;
#pragma omp parallel num_threads(threads) if (parallel : SHARED_PRODUCT(M, I, O)) reduction(|| : refused)
    refused = gather(&of);
    return refused;
}
