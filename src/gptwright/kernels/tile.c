/* The sums of a tile: of float32 by vectors, of bfloat16 by the best that the CPU has: matrix registers
 * (Intel's AMX), AVX-512's instruction for it, or in float32.
 *
 * A matrix register holds 16 rows of 64 bytes. Four of them keep the sums of 32 rows and 32 columns, two are
 * loaded from the left operand and two from the panel, whose pairs lie as the instruction wants them. Less
 * than 16 rows are left to vectors, six rows at a time.
 */
#include "product.h"

/* Rows whose sums vectors keep, with those of WIDTH columns. */
enum { FEW = 6 };

#ifdef FLOAT32

/* Sums stay in registers only if these loops are gone before gcc looks for registers. */
#define UNROLLED _Pragma("GCC unroll 8")

/* All columns of some vectors; the sums of row r begin with what is at begin[r * apart]. */
static inline __attribute__((always_inline)) void whole_vectors(int rows, int vectors, lefts left,
                                                                const word *panel, i64 words,
                                                                const float *begin, i64 apart, float *to,
                                                                i64 row)
{
    vector sum[FEW][VECTORS];
    UNROLLED
    for (int r = 0; r < rows; r++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[r][v] = *(const lying *)(begin + r * apart + v * LANES);
    for (const word *at = left.at, *end = panel + words * WIDTH; panel < end; at += left.next, panel += WIDTH)
        UNROLLED
        for (int r = 0; r < rows; r++) {
            float one = at[r * left.row];
            UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[r][v] += one * *(const lying *)(panel + v * LANES);
        }
    UNROLLED
    for (int r = 0; r < rows; r++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            *(lying *)(to + r * row + v * LANES) = sum[r][v];
}

/* The same of columns that may end within a vector. */
static inline __attribute__((always_inline)) void vectors_of(int rows, int vectors, lefts left,
                                                             const word *panel, const float *bias, i64 words,
                                                             target to, i64 columns)
{
    static const float nothing[WIDTH];
    float *at = to.at, some[FEW][WIDTH] = {{0.0f}};
    const float *begin = to.how == ADDED ? at : bias ? bias : nothing;
    i64 apart = to.how == ADDED ? to.row : 0;
    if (columns == vectors * LANES) {
        whole_vectors(rows, vectors, left, panel, words, begin, apart, at, to.row);
        return;
    }
    for (i64 r = 0; r < rows; r++)
        memcpy(some[r], begin + r * apart, (size_t)columns * sizeof(float));
    whole_vectors(rows, vectors, left, panel, words, some[0], WIDTH, some[0], WIDTH);
    for (i64 r = 0; r < rows; r++)
        memcpy(at + r * to.row, some[r], (size_t)columns * sizeof(float));
}

#elif defined(BFLOAT16_INSTRUCTIONS)

/* A vector of sums to its place, of which the mask's columns are there. */
static inline void put(__m512 sum, target to, i64 place, __mmask16 here)
{
    float *wide_to = (float *)to.at + place;
    if (to.how == NARROWED)
        _mm256_mask_storeu_epi16((number *)to.at + place, here, (__m256i)_mm512_cvtneps_pbh(sum));
    else if (to.how == PUT)
        _mm512_mask_storeu_ps(wide_to, here, sum);
    else
        _mm512_mask_storeu_ps(wide_to, here, _mm512_add_ps(sum, _mm512_maskz_loadu_ps(here, wide_to)));
}

/* The first `count` of a vector's lanes. */
static inline __mmask16 first(i64 count) { return (__mmask16)((1u << least(count, LANES)) - 1); }

static inline __attribute__((always_inline)) void vectors_of(int rows, int vectors, lefts left,
                                                             const word *panel, const float *bias,
                                                             i64 words, target to, i64 columns)
{
    __m512 sum[FEW][VECTORS];
    for (int v = 0; v < vectors; v++) {
        __mmask16 here = first(columns - v * LANES);
        __m512 begin = bias ? _mm512_maskz_loadu_ps(here, bias + v * LANES) : _mm512_setzero_ps();
        for (int r = 0; r < rows; r++)
            sum[r][v] = begin;
    }
    for (i64 w = 0; w < words; w++) {
        __m512bh right[VECTORS];
        for (int v = 0; v < vectors; v++)
            right[v] = (__m512bh)_mm512_loadu_si512(panel + w * WIDTH + v * LANES);
        for (int r = 0; r < rows; r++) {
            __m512bh both = (__m512bh)_mm512_set1_epi32((int)left.at[r * left.row + w * left.next]);
            for (int v = 0; v < vectors; v++)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], both, right[v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            put(sum[r][v], to, r * to.row + v * LANES, first(columns - v * LANES));
}

#else

/* Once for all sizes: nobody trains by it, and gcc would take ten seconds for it in each. */
static __attribute__((noinline)) void vectors_of(int rows, int vectors, lefts left, const word *panel,
                                                 const float *bias, i64 words, target to, i64 columns)
{
    float sum[FEW][WIDTH] = {{0.0f}};
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < vectors * LANES; c++)
            sum[r][c] = bias && c < columns ? bias[c] : 0.0f;
    for (i64 w = 0; w < words; w++)
        for (int r = 0; r < rows; r++) {
            uint32_t both = left.at[r * left.row + w * left.next];
            float even = wide((number)both), odd = wide((number)(both >> 16));
            const word *right = panel + w * WIDTH;
#pragma omp simd
            for (int c = 0; c < vectors * LANES; c++)
                sum[r][c] += even * wide((number)right[c]) + odd * wide((number)(right[c] >> 16));
        }
    for (int r = 0; r < rows; r++)
        for (i64 c = 0; c < columns; c++) {
            i64 place = r * to.row + c;
            if (to.how == NARROWED)
                ((number *)to.at)[place] = narrow(sum[r][c]);
            else
                ((float *)to.at)[place] = sum[r][c] + (to.how == ADDED ? ((float *)to.at)[place] : 0.0f);
        }
}

#endif

static void few_rows(i64 rows, lefts left, const word *panel, const float *bias, i64 words, target to,
                     i64 columns)
{
#define SIZED(R, V)                                                                                          \
    case (R) * 8 + (V):                                                                                      \
        vectors_of(R, (V) < VECTORS ? (V) : VECTORS, left, panel, bias, words, to, columns);                 \
        break;
#define EACH(R) SIZED(R, 1) SIZED(R, 2) SIZED(R, 3) SIZED(R, 4)
    switch (rows * 8 + multiple(columns, LANES) / LANES) {
        EACH(1) EACH(2) EACH(3) EACH(4) EACH(5) EACH(6)
    }
#undef EACH
#undef SIZED
}

#ifdef MATRIX_REGISTERS

#include <sys/syscall.h>
#include <unistd.h>

/* Whether Linux lets this process use the registers, which it does not do unasked. */
static int permitted;

__attribute__((constructor)) static void ask(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA */
    permitted = !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
}

void begin_tiles(void)
{
    struct { uint8_t palette, none[15]; uint16_t bytes[16]; uint8_t rows[16]; } shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.bytes[i] = LANES * sizeof(word);
        shape.rows[i] = LANES;
    }
    if (permitted)
        __asm__ volatile("ldtilecfg %0" : : "m"(shape));
}

void end_tiles(void)
{
    if (permitted)
        __asm__ volatile("tilerelease");
}

/* gcc does not know that loads and stores of these registers read and write memory. */
#define MEMORY_IS_USED() __asm__ volatile("" : : : "memory")

/* The four registers of sums, whose rows lie `step` bytes apart; only those that `tall` and `across` need. */
#define EACH_SUM(DO, at, row, step)                                                                          \
    do {                                                                                                     \
        DO(0, (at), step);                                                                                   \
        if (across == 2)                                                                                     \
            DO(1, (at) + LANES, step);                                                                       \
        if (tall == 2)                                                                                       \
            DO(2, (at) + LANES * (row), step);                                                               \
        if (tall == 2 && across == 2)                                                                        \
            DO(3, (at) + LANES * (row) + LANES, step);                                                       \
    } while (0)

/* 16 * tall rows and up to 16 * across columns. */
static inline __attribute__((always_inline)) void square_of(int tall, int across, lefts left,
                                                            const word *panel, const float *bias,
                                                            i64 words, target to, i64 columns)
{
    float sums[2 * LANES][2 * LANES] __attribute__((aligned(64)));
    word rest[2 * LANES][LANES] __attribute__((aligned(64)));
    i64 size = to.how == NARROWED ? sizeof(number) : sizeof(float);
    int direct = to.how != NARROWED && columns == across * LANES;
    float *at = direct ? to.at : sums[0];
    i64 row = direct ? to.row : 2 * LANES, bytes = row * (i64)sizeof(float), whole = words / LANES * LANES;
    for (int v = 0; bias && v < across; v++)
        _mm512_store_ps(sums[0] + v * LANES,
                        _mm512_maskz_loadu_ps(first(columns - v * LANES), bias + v * LANES));
    for (int r = 0; whole < words && r < tall * LANES; r++)
        _mm512_store_si512(rest[r],
                           _mm512_maskz_loadu_epi32(first(words - whole), left.at + r * left.row + whole));
    /* The lines that will be written are fetched while the sums are made. */
    for (int r = 0; r < tall * LANES; r++)
        for (int line = 0; line < (to.how == NARROWED ? 1 : across); line++)
            __builtin_prefetch((char *)to.at + r * to.row * size + 64 * line, 1);
    MEMORY_IS_USED();
    if (bias)
        EACH_SUM(_tile_loadd, sums[0], 0, 0);
    else if (direct && to.how == ADDED)
        EACH_SUM(_tile_loadd, at, row, bytes);
    else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (i64 p = 0; p < words; p += LANES) {
        const word *from = p < whole ? left.at + p : rest[0];
        i64 apart = p < whole ? left.row : LANES, step = apart * (i64)sizeof(word);
        _tile_loadd(4, from, step);
        _tile_loadd(6, panel + p * WIDTH, WIDTH * sizeof(word));
        _tile_dpbf16ps(0, 4, 6);
        if (across == 2) {
            _tile_loadd(7, panel + p * WIDTH + LANES, WIDTH * sizeof(word));
            _tile_dpbf16ps(1, 4, 7);
        }
        if (tall == 2) {
            _tile_loadd(5, from + LANES * apart, step);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (tall == 2 && across == 2)
            _tile_dpbf16ps(3, 5, 7);
    }
    EACH_SUM(_tile_stored, at, row, bytes);
    MEMORY_IS_USED();
    for (int r = 0; !direct && r < tall * LANES; r++)
        for (int v = 0; v < across; v++)
            put(_mm512_load_ps(sums[r] + v * LANES), to, r * to.row + v * LANES, first(columns - v * LANES));
}

/* All columns of 16 * tall rows. */
static inline __attribute__((always_inline)) void squares(int tall, lefts left, const word *panel,
                                                          const float *bias, i64 words, target to,
                                                          i64 columns)
{
    i64 size = to.how == NARROWED ? sizeof(number) : sizeof(float);
    for (i64 c = 0; c < columns; c += 2 * LANES) {
        target here = {(char *)to.at + c * size, to.row, to.how};
        const float *begin = bias ? bias + c : NULL;
        if (columns - c > LANES)
            square_of(tall, 2, left, panel + c, begin, words, here, least(2 * LANES, columns - c));
        else
            square_of(tall, 1, left, panel + c, begin, words, here, columns - c);
    }
}

static i64 rows_of_squares(i64 rows, lefts left, const word *panel, const float *bias, i64 words,
                           target to, i64 columns)
{
    if (!permitted || rows < LANES)
        return 0;
    if (rows < 2 * LANES) {
        squares(1, left, panel, bias, words, to, columns);
        return LANES;
    }
    squares(2, left, panel, bias, words, to, columns);
    return 2 * LANES;
}

#else

void begin_tiles(void) {}

void end_tiles(void) {}

static i64 rows_of_squares(i64 rows, lefts left, const word *panel, const float *bias, i64 words,
                           target to, i64 columns)
{
    return 0;
}

#endif

void tile(i64 rows, lefts left, const word *panel, const float *bias, i64 words, target to, i64 columns)
{
    i64 size = to.how == NARROWED ? sizeof(number) : sizeof(float);
    while (rows > 0) {
        i64 done = rows_of_squares(rows, left, panel, bias, words, to, columns);
        if (!done)
            few_rows(done = least(FEW, rows), left, panel, bias, words, to, columns);
        left.at += done * left.row;
        to.at = (char *)to.at + done * to.row * size;
        rows -= done;
    }
}
