/* Causal attention and its way back, a head of a sequence at a time.
 *
 * Scores and probabilities live only in a thread's own room, which its caches hold: none is kept. Of a
 * softmax the logarithm of its sum is kept, and the way back computes probabilities again (Dao et al. 2022,
 * FlashAttention, arXiv 2205.14135). Scores are float32; probabilities are rounded to numbers where they are
 * multiplied.
 *
 * Shapes: B sequences, T tokens, H heads, D channels of a head, N = B * H.
 */
#include "heads.h"
#include "product.h"

/* Queries that are done together, and keys on the way back: whole panels. */
enum { QUERIES = 64, KEYS = 128 };

/* Beyond the last key that a query sees so many weights at least are 0: its tile's other rows see some of
 * them, and words are multiplied so many together. */
enum { BEYOND = ROWS + IN_WORD * STEP };

/* Keys that a query sees, rounded up so that no vector is cut; what lies beyond is made to weigh nothing. */
static inline i64 looked_at(float *scores, i64 seen)
{
    i64 looked = multiple(seen, LANES);
    for (i64 k = seen; k < looked; k++)
        scores[k] = -INFINITY;
    return looked;
}

/* Panels of T columns in which a row's channels are the terms, and of D columns whose terms are the rows. */
static void pack_keys(const task *of, rows from, word *panels)
{
    for (i64 t = 0; t < of->T; t += WIDTH)
        pack_columns((source){from.at + t * from.row, from.row, 0}, panels + t * panel_words(of->D), of->D,
                     least(WIDTH, of->T - t));
}

static void pack_tokens(const task *of, rows from, word *panels)
{
    for (i64 d = 0; d < of->D; d += WIDTH)
        pack_rows((source){from.at + d, from.row, 0}, panels + d * panel_words(of->T), WIDTH, of->T,
                  least(WIDTH, of->D - d));
}

/* Queries [first, first + count), keys [from, until), and elements from one query's weights to the next's. */
typedef struct {
    i64 first, count, from, until, stride;
} block;

/* to [count, stride] = rows of the queries times the keys that a query of a tile sees. */
static void multiply_keys(const task *of, block at, rows queries, const word *panels, float *to)
{
    i64 panel = panel_words(of->D), words = of->even / IN_WORD;
    for (i64 k = at.from; k < at.until; k += WIDTH)
        for (i64 r = 0; r < at.count; r += ROWS) {
            i64 tall = least(ROWS, at.count - r), seen = least(at.until, at.first + r + tall) - k;
            const number *row = queries.at + (at.first + r) * queries.row;
            if (seen > 0)
                tile(tall, (lefts){(const word *)row, queries.row / IN_WORD, 1}, panels + k * panel, NULL,
                     words, (target){to + r * at.stride + k - at.from, at.stride, PUT},
                     multiple(least(WIDTH, seen), LANES));
        }
}

/* to [count, D] = weights [count, stride] times tokens, none of which its tile does not see. */
static void multiply_tokens(const task *of, block at, const number *weights, const word *panels, target to)
{
    i64 size = to.how == NARROWED ? sizeof(number) : sizeof(float);
    for (i64 d = 0; d < of->D; d += WIDTH)
        for (i64 r = 0; r < at.count; r += ROWS) {
            i64 tall = least(ROWS, at.count - r), seen = least(at.until, at.first + r + tall);
            target here = {(char *)to.at + (r * to.row + d) * size, to.row, to.how};
            const word *panel = panels + d * panel_words(of->T) + at.from / IN_WORD * WIDTH;
            lefts left = {(const word *)(weights + r * at.stride), at.stride / IN_WORD, 1};
            if (seen > at.from)
                tile(tall, left, panel, NULL, words_of(seen - at.from), here, least(WIDTH, of->D - d));
        }
}

/* to [T, D] at the keys += the transpose of weights [count, stride] times tokens of the queries that see
 * them. */
static void add_transposed(const task *of, block at, const number *weights, word *room,
                           const word *panels, float *to)
{
    i64 words = panel_words(at.count), all = at.until - at.from;
    pack_left((source){weights, at.stride, 0}, room, at.count, all);
    for (i64 d = 0; d < of->D; d += WIDTH)
        for (i64 k = 0; k < all; k += ROWS) {
            i64 begin = at.from + k > at.first ? (at.from + k - at.first) / IN_WORD : 0;
            const word *panel = panels + d * panel_words(of->T) + (at.first / IN_WORD + begin) * WIDTH;
            target here = {to + (at.from + k) * of->D + d, of->D, ADDED};
            tile(least(ROWS, all - k), packed_left(room, at.count, k, begin), panel, NULL, words - begin,
                 here, least(WIDTH, of->D - d));
        }
}

static inline float kept(const task *of, uint32_t place)
{
    return fate(place, of->seed) < of->dropped ? 0.0f : of->factor;
}

/* weights = softmax(scale * scores) of the keys that each query of a block sees, 0 a little beyond, some
 * dropped, and logarithms of the sums. `place` is that of the first score for dropout. In passes over all
 * queries, because one alone would have the CPU wait for its largest score and its sum. */
static void softmax(const task *of, block at, float *scores, number *weights, float *logarithms,
                    uint32_t place)
{
    float scale = 1.0f / sqrtf((float)of->D), largest[QUERIES], sums[QUERIES];
    for (i64 r = 0; r < at.count; r++) {
        float *row = scores + r * at.stride, most = -INFINITY;
        i64 looked = looked_at(row, at.first + r + 1);
#pragma omp simd reduction(max : most)
        for (i64 k = 0; k < looked; k++)
            most = row[k] > most ? row[k] : most;
        largest[r] = most;
    }
    for (i64 r = 0; r < at.count; r++) {
        float *row = scores + r * at.stride, sum = 0.0f;
        i64 looked = multiple(at.first + r + 1, LANES);
#pragma omp simd reduction(+ : sum)
        for (i64 k = 0; k < looked; k++) {
            row[k] = exponential((row[k] - largest[r]) * scale);
            sum += row[k];
        }
        sums[r] = sum;
    }
    for (i64 r = 0; r < at.count; r++) {
        float *row = scores + r * at.stride, share = 1.0f / sums[r];
        number *to = weights + r * at.stride;
        i64 looked = multiple(at.first + r + 1, LANES);
        if (of->dropped) {
#pragma omp simd
            for (i64 k = 0; k < looked; k++)
                row[k] *= kept(of, place + (uint32_t)(r * of->T + k));
        }
#pragma omp simd
        for (i64 k = 0; k < looked; k++)
            row[k] *= share;
        narrow_all(row, to, looked);
        memset(to + looked, 0, BEYOND * sizeof(number));
        logarithms[r] = largest[r] * scale + logf(sums[r]);
    }
}

/* Of the first `seen` keys: weights as `softmax` made them, and gradient, that of the scores, from g, that of
 * the weights; `along` is their product with the weights. Both are 0 a little beyond. Scores and g are used
 * up. */
static inline void softmax_back(const task *of, float *scores, float *g, number *weights, number *gradient,
                                i64 seen, float scale, float logarithm, float along, uint32_t place)
{
    i64 looked = looked_at(scores, seen);
    if (of->dropped) {
#pragma omp simd
        for (i64 k = 0; k < looked; k++) {
            float p = exponential(scores[k] * scale - logarithm), stays = kept(of, place + (uint32_t)k);
            scores[k] = p * stays;
            g[k] = p * (g[k] * stays - along) * scale;
        }
    } else {
#pragma omp simd
        for (i64 k = 0; k < looked; k++) {
            scores[k] = exponential(scores[k] * scale - logarithm);
            g[k] = scores[k] * (g[k] - along) * scale;
        }
    }
    narrow_all(scores, weights, looked);
    narrow_all(g, gradient, looked);
    memset(weights + seen, 0, (size_t)(looked - seen + BEYOND) * sizeof(number));
    memset(gradient + seen, 0, (size_t)(looked - seen + BEYOND) * sizeof(number));
}

/* `count` elements off a room that begins at null when it is only counted. */
static inline void *carved(char **room, i64 count, size_t size)
{
    char *at = *room;
    *room = (char *)((uintptr_t)at + ((size_t)count * size + 63) / 64 * 64);
    return at;
}

/* What a thread works with: rows and panels of a head, scores and weights of a block. Rows lie in the room
 * only if something is done to them. */
typedef struct {
    rows q, k, dy;
    number *q_room, *k_room, *dy_room, *weights, *ds;
    word *k_keys, *v_keys, *q_tokens, *k_tokens, *v_tokens, *dy_tokens, *left;
    float *q_inverse, *k_inverse, *scores, *dweights, *along, *dq, *dk, *dv;
} room;

/* The end of a room that begins at `begin`, for forward passes or for the way back too. */
static uintptr_t carve(const task *of, room *to, char *begin, i64 stride, int back)
{
    char *at = begin;
    i64 T = of->T, elements = T * of->even, by_keys = multiple(T, WIDTH) * panel_words(of->D);
    i64 by_tokens = multiple(of->D, WIDTH) * panel_words(T), scores = QUERIES * stride;
    to->q_room = carved(&at, elements, sizeof(number));
    to->k_room = carved(&at, elements, sizeof(number));
    to->q_inverse = carved(&at, T, sizeof(float));
    to->k_inverse = carved(&at, T, sizeof(float));
    to->k_keys = carved(&at, by_keys, sizeof(word));
    to->scores = carved(&at, scores, sizeof(float));
    to->weights = carved(&at, scores, sizeof(number));
    if (!back) {
        to->v_tokens = carved(&at, by_tokens, sizeof(word));
        return (uintptr_t)at;
    }
    to->dy_room = carved(&at, elements, sizeof(number));
    to->v_keys = carved(&at, by_keys, sizeof(word));
    to->q_tokens = carved(&at, by_tokens, sizeof(word));
    to->k_tokens = carved(&at, by_tokens, sizeof(word));
    to->dy_tokens = carved(&at, by_tokens, sizeof(word));
    to->left = carved(&at, panel_words(QUERIES) * multiple(KEYS, TALL), sizeof(word));
    to->dweights = carved(&at, scores, sizeof(float));
    to->ds = carved(&at, scores, sizeof(number));
    to->along = carved(&at, T, sizeof(float));
    to->dq = carved(&at, QUERIES * of->D, sizeof(float));
    to->dk = carved(&at, T * of->D, sizeof(float));
    to->dv = carved(&at, T * of->D, sizeof(float));
    return (uintptr_t)at;
}

/* Room for a head in this thread; whether there is some. */
static int take_room(const task *of, room *to, i64 stride, int back)
{
    char *begin = own_room(carve(of, to, NULL, stride, back));
    if (begin)
        carve(of, to, begin, stride, back);
    return begin != NULL;
}

/* Queries and keys of a head, whose rows begin at `head`, and panels of the keys. */
static void take_queries_and_keys(const task *of, const number *head, room *in)
{
    i64 C = of->H * of->D;
    if (of->own || of->scaled) {
        take_turned(of, head, 3 * C, in->q_room, in->q_inverse);
        take_turned(of, head + C, 3 * C, in->k_room, in->k_inverse);
        in->q = (rows){in->q_room, of->even};
        in->k = (rows){in->k_room, of->even};
    } else {
        in->q = even_rows(of, head, 3 * C, in->q_room);
        in->k = even_rows(of, head + C, 3 * C, in->k_room);
    }
    pack_keys(of, in->k, in->k_keys);
}

/* A block's elements from one query's weights to the next's, of at most so many keys. */
static inline i64 stride_of(i64 keys) { return multiple(keys, LANES) + multiple(BEYOND, LANES); }

/* Head n: its columns of y [T, H * D] and logarithms [T] of its rows of qkv [T, 3 * H * D]. Whether there was
 * no room to work in. */
static int head(const task *of, i64 n, const number *qkv, number *y, float *logarithms)
{
    i64 T = of->T, C = of->H * of->D, stride = stride_of(T);
    room in;
    if (!take_room(of, &in, stride, 0))
        return 1;
    begin_tiles();
    take_queries_and_keys(of, qkv, &in);
    pack_tokens(of, (rows){qkv + 2 * C, 3 * C}, in.v_tokens);
    for (i64 first = 0; first < T; first += QUERIES) {
        i64 count = least(QUERIES, T - first);
        block at = {first, count, 0, first + count, stride};
        multiply_keys(of, at, in.q, in.k_keys, in.scores);
        softmax(of, at, in.scores, in.weights, logarithms + first, (uint32_t)((n * T + first) * T));
        multiply_tokens(of, at, in.weights, in.v_tokens, (target){y + first * C, C, NARROWED});
    }
    end_tiles();
    return 0;
}

/* dqkv of head n; the same is said. */
static int head_back(const task *of, i64 n, const number *qkv, const number *y, const number *dy,
                      const float *logarithms, number *dqkv)
{
    i64 T = of->T, D = of->D, C = of->H * D, stride = stride_of(KEYS);
    int turned = of->own || of->scaled;
    float scale = 1.0f / sqrtf((float)D);
    room in;
    if (!take_room(of, &in, stride, 1))
        return 1;
    begin_tiles();
    take_queries_and_keys(of, qkv, &in);
    in.dy = even_rows(of, dy, C, in.dy_room);
    pack_keys(of, (rows){qkv + 2 * C, 3 * C}, in.v_keys);
    pack_tokens(of, in.q, in.q_tokens);
    pack_tokens(of, in.k, in.k_tokens);
    pack_tokens(of, in.dy, in.dy_tokens);
    memset(in.dk, 0, (size_t)(T * D) * sizeof(float));
    memset(in.dv, 0, (size_t)(T * D) * sizeof(float));
    for (i64 t = 0; t < T; t++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (i64 d = 0; d < D; d++)
            sum += wide(y[t * C + d]) * wide(dy[t * C + d]);
        in.along[t] = sum;
    }
    for (i64 first = 0; first < T; first += QUERIES) {
        i64 count = least(QUERIES, T - first);
        for (i64 from = 0; from < first + count; from += KEYS) {
            block at = {first, count, from, least(from + KEYS, first + count), stride};
            multiply_keys(of, at, in.q, in.k_keys, in.scores);
            multiply_keys(of, at, in.dy, in.v_keys, in.dweights);
            for (i64 r = 0; r < count; r++) {
                i64 seen = least(at.until, first + r + 1) - from;
                softmax_back(of, in.scores + r * stride, in.dweights + r * stride, in.weights + r * stride,
                             in.ds + r * stride, seen < 0 ? 0 : seen, scale, logarithms[first + r],
                             in.along[first + r], (uint32_t)((n * T + first + r) * T + from));
            }
            multiply_tokens(of, at, in.ds, in.k_tokens, (target){in.dq, D, from ? ADDED : PUT});
            add_transposed(of, at, in.ds, in.left, in.q_tokens, in.dk);
            add_transposed(of, at, in.weights, in.left, in.dy_tokens, in.dv);
        }
        if (turned)
            give_turned(of, in.dq, dqkv, 3 * C, first, count, in.q_room, in.q_inverse);
        else
            give_rows(of, in.dq, dqkv + first * 3 * C, 3 * C, count);
    }
    if (turned)
        give_turned(of, in.dk, dqkv + C, 3 * C, 0, T, in.k_room, in.k_inverse);
    else
        give_rows(of, in.dk, dqkv + C, 3 * C, T);
    give_rows(of, in.dv, dqkv + 2 * C, 3 * C, T);
    end_tiles();
    return 0;
}

static task task_of(i64 T, i64 H, i64 D, const float *own, const float *others, int scaled, float epsilon,
                    i64 seed, i64 dropped, float factor)
{
    i64 even = multiple(D, IN_WORD);
    return (task){T, H, D, even, own, others, scaled, epsilon, keys_of(seed), (uint32_t)dropped, factor};
}

/* y [B * T, H * D] and logarithms [N, T] of qkv [B * T, 3 * H * D]: queries, keys, values. Whether a thread
 * had no room to work in, and something is missing. */
int attention(const number *qkv, number *y, float *logarithms, const float *own, const float *others,
               int scaled, float epsilon, i64 seed, i64 dropped, float factor, i64 B, i64 T, i64 H, i64 D,
               int threads)
{
    task of = task_of(T, H, D, own, others, scaled, epsilon, seed, dropped, factor);
    int refused = 0;
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(B * T * H * D)) schedule(static)         \
    reduction(|| : refused)
    for (i64 n = 0; n < B * H; n++) {
        i64 place = n / H * T * H * D, column = n % H * D;
        refused |= head(&of, n, qkv + 3 * place + column, y + place + column, logarithms + n * T);
    }
    return refused;
}

/* dqkv, from dy and what `attention` was given and made; the same is said. */
int attention_back(const number *qkv, const number *y, const number *dy, const float *logarithms,
                    number *dqkv, const float *own, const float *others, int scaled, float epsilon, i64 seed,
                    i64 dropped, float factor, i64 B, i64 T, i64 H, i64 D, int threads)
{
    task of = task_of(T, H, D, own, others, scaled, epsilon, seed, dropped, factor);
    int refused = 0;
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(B * T * H * D)) schedule(static)         \
    reduction(|| : refused)
    for (i64 n = 0; n < B * H; n++) {
        i64 place = n / H * T * H * D, column = n % H * D;
        i64 of_qkv = 3 * place + column, of_y = place + column;
        refused |= head_back(&of, n, qkv + of_qkv, y + of_y, dy + of_y, logarithms + n * T, dqkv + of_qkv);
    }
    return refused;
}
