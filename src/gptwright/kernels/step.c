/* What a training step in bfloat16 does on a CPU between its matrix products.
 *
 * torch makes each of these of several passes over memory, with a cast before and after: here each is one.
 * All arithmetic is in float32; tensors that products read or write are bfloat16, and the residual stream, the
 * statistics of norms, losses and the gradients of vectors are float32. Threads take equal shares in a fixed
 * order, so the same number of threads gives the same bits.
 *
 * Everything is contiguous. Shapes: R rows (tokens), C channels; B batch, T tokens, H heads, D = C / H;
 * N = B * H; V vocabulary.
 */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t bf16;
typedef int64_t i64;

/* Fewer elements are done before a second thread has begun; torch's own operations draw the same line. */
#define SHARED(elements) ((elements) >= 32768)

static inline float wide(bf16 narrow)
{
    union { uint32_t bits; float value; } both = {(uint32_t)narrow << 16};
    return both.value;
}

/* To the nearest, ties to even; NaN stays NaN. */
static inline bf16 narrow(float value)
{
    union { float value; uint32_t bits; } both = {value};
    uint32_t rounded = (both.bits + 0x7fff + ((both.bits >> 16) & 1)) >> 16;
    return (both.bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (bf16)rounded;
}

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

/* The normal distribution's cumulative at x, given exp(-x^2 / 2); within 1.5e-7 (Abramowitz and Stegun 7.1.26). */
static inline float normal(float x, float bell)
{
    float t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * fabsf(x));
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float tail = 0.5f * p * t * bell;
    return x < 0.0f ? tail : 1.0f - tail;
}

/* y = gelu(x); x becomes its slope there, which is all that the way back needs of it. */
void gelu(bf16 *x, bf16 *y, i64 count, int threads)
{
#pragma omp parallel for simd num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 i = 0; i < count; i++) {
        float v = wide(x[i]);
        float bell = exponential(-0.5f * v * v), below = normal(v, bell);
        y[i] = narrow(v * below);
        x[i] = narrow(below + v * bell * 0.39894228f);
    }
}

/* y = max(x, 0)^2; x becomes its slope there. */
void relu2(bf16 *x, bf16 *y, i64 count, int threads)
{
#pragma omp parallel for simd num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 i = 0; i < count; i++) {
        float v = wide(x[i]), above = v < 0.0f ? 0.0f : v;
        y[i] = narrow(above * above);
        x[i] = narrow(2.0f * above);
    }
}

/* g becomes slope * g. */
void scale(const bf16 *slope, bf16 *g, i64 count, int threads)
{
#pragma omp parallel for simd num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 i = 0; i < count; i++)
        g[i] = narrow(wide(slope[i]) * wide(g[i]));
}

/* MurmurHash3's finalizer (Appleby 2011): every bit of h changes about half of the result's. */
static inline uint32_t mixed(uint32_t h)
{
    h = (h ^ (h >> 16)) * 0x85ebca6b;
    h = (h ^ (h >> 13)) * 0xc2b2ae35;
    return h ^ (h >> 16);
}

/* The two keys of a seed; seeds that differ in a bit share neither. */
typedef struct { uint32_t first, second; } keys;

static inline keys keys_of(i64 seed)
{
    uint32_t low = mixed((uint32_t)seed), high = mixed((uint32_t)((uint64_t)seed >> 32) + 0x9e3779b9);
    return (keys){mixed(low ^ high), mixed(low + 3 * high + 1)};
}

/* Sixteen bits for an element that look like chance, whatever the number of threads. */
static inline uint32_t fate(uint32_t index, keys seed)
{
    return mixed(mixed(index ^ seed.first) + seed.second) >> 16;
}

/* y = x * factor, or 0 for `dropped` of 65,536 fates; y may be x. */
void drop(const bf16 *x, bf16 *y, i64 seed, i64 dropped, float factor, i64 count, int threads)
{
    keys of = keys_of(seed);
    uint32_t below = (uint32_t)dropped;
#pragma omp parallel for simd num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 i = 0; i < count; i++)
        y[i] = fate((uint32_t)i, of) < below ? 0 : narrow(wide(x[i]) * factor);
}

/* The same for the residual stream. */
void drop_stream(const float *x, float *y, i64 seed, i64 dropped, float factor, i64 count, int threads)
{
    keys of = keys_of(seed);
    uint32_t below = (uint32_t)dropped;
#pragma omp parallel for simd num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 i = 0; i < count; i++)
        y[i] = fate((uint32_t)i, of) < below ? 0.0f : x[i] * factor;
}

/* sum = x + branch. */
void add(const float *x, const bf16 *branch, float *sum, i64 count, int threads)
{
#pragma omp parallel for simd num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 i = 0; i < count; i++)
        sum[i] = x[i] + wide(branch[i]);
}

/* y = norm(x), or with a branch sum = x + branch and y = norm(sum): a layer norm with weight and perhaps bias,
 * or without a weight an RMS norm. [R, C]; statistics [2, R]: means, which an RMS norm leaves at 0, and
 * reciprocal deviations. */
void norm(const float *x, const bf16 *branch, const float *weight, const float *bias, float *sum, bf16 *y,
          float *statistics, i64 R, i64 C, float epsilon, int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(R * C)) schedule(static)
    for (i64 r = 0; r < R; r++) {
        const float *in = x + r * C;
        bf16 *out = y + r * C;
        if (branch) {
            const bf16 *added = branch + r * C;
            float *to = sum + r * C;
#pragma omp simd
            for (i64 c = 0; c < C; c++)
                to[c] = in[c] + wide(added[c]);
            in = to;
        }
        float mean = 0.0f, square = 0.0f;
        if (weight) {
#pragma omp simd reduction(+ : mean)
            for (i64 c = 0; c < C; c++)
                mean += in[c];
            mean /= (float)C;
        }
#pragma omp simd reduction(+ : square)
        for (i64 c = 0; c < C; c++)
            square += (in[c] - mean) * (in[c] - mean);
        float inverse = 1.0f / sqrtf(square / (float)C + epsilon);
        statistics[r] = mean;
        statistics[R + r] = inverse;
        if (!weight) {
#pragma omp simd
            for (i64 c = 0; c < C; c++)
                out[c] = narrow(in[c] * inverse);
        } else if (!bias) {
#pragma omp simd
            for (i64 c = 0; c < C; c++)
                out[c] = narrow((in[c] - mean) * inverse * weight[c]);
        } else {
#pragma omp simd
            for (i64 c = 0; c < C; c++)
                out[c] = narrow((in[c] - mean) * inverse * weight[c] + bias[c]);
        }
    }
}

/* dx = residual's gradient (unless null) + the gradient through the norm of x; dbranch the same in bfloat16.
 * dweight and dbias [C]; sums [threads, 2, C] is room for each thread's own. Null where there is none of it. */
void norm_back(const float *residual, const bf16 *dy, const float *x, const float *weight,
               const float *statistics, float *dx, bf16 *dbranch, float *dweight, float *dbias, float *sums,
               i64 R, i64 C, int threads)
{
#pragma omp parallel num_threads(threads) if (parallel : SHARED(R * C))
    {
        i64 me = omp_get_thread_num(), all = omp_get_num_threads();
        float *own = sums + me * 2 * C;
        memset(own, 0, 2 * (size_t)C * sizeof(float));
        for (i64 r = R * me / all; r < R * (me + 1) / all; r++) {
            const float *in = x + r * C, mean = statistics[r], inverse = statistics[R + r];
            const bf16 *g = dy + r * C;
            float *out = dx + r * C, along = 0.0f, total = 0.0f;
            if (weight) {
#pragma omp simd reduction(+ : total, along)
                for (i64 c = 0; c < C; c++) {
                    float normal = (in[c] - mean) * inverse, gradient = wide(g[c]);
                    own[c] += gradient * normal;
                    own[C + c] += gradient;
                    total += gradient * weight[c];
                    along += gradient * weight[c] * normal;
                }
                total /= (float)C;
                along /= (float)C;
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    out[c] = inverse * (wide(g[c]) * weight[c] - total - (in[c] - mean) * inverse * along);
            } else {
#pragma omp simd reduction(+ : along)
                for (i64 c = 0; c < C; c++)
                    along += wide(g[c]) * in[c] * inverse;
                along /= (float)C;
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    out[c] = inverse * (wide(g[c]) - in[c] * inverse * along);
            }
            if (residual) {
                const float *passed = residual + r * C;
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    out[c] += passed[c];
            }
            if (dbranch) {
                bf16 *to = dbranch + r * C;
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    to[c] = narrow(out[c]);
            }
        }
#pragma omp barrier
#pragma omp single
        for (i64 t = 0; weight && t < all; t++)
            for (i64 c = 0; c < C; c++) {
                dweight[c] = (t ? dweight[c] : 0.0f) + sums[t * 2 * C + c];
                if (dbias)
                    dbias[c] = (t ? dbias[c] : 0.0f) + sums[t * 2 * C + C + c];
            }
    }
}

static inline void narrow_all(const float *x, bf16 *to, i64 count)
{
#pragma omp simd
    for (i64 i = 0; i < count; i++)
        to[i] = narrow(x[i]);
}

/* Each of D channels times a factor of its own, plus its partner's, half of them away, times another's: that of the
 * channel, or on the way back that of the partner. */
static inline void turn(const float *x, bf16 *to, const float *own, const float *others, int back, i64 D)
{
    i64 half = D / 2;
    for (i64 here = 0; here < D; here += half) {
        i64 there = half - here, factor = back ? there : here;
#pragma omp simd
        for (i64 d = 0; d < half; d++)
            to[here + d] = narrow(x[here + d] * own[here + d] + x[there + d] * others[factor + d]);
    }
}

/* tokens [B, T, P, H, D] to heads [P, B, H, T, D]. The first `turned` of the P parts are, if asked, scaled to a
 * mean square of 1 (inverse [turned, B, H, T] is what by), and turned by rotary factors [T, D] unless null. */
void split_heads(const bf16 *tokens, bf16 *heads, const float *own, const float *others, float *inverse,
                 float epsilon, i64 turned, i64 B, i64 T, i64 P, i64 H, i64 D, int threads)
{
#pragma omp parallel for collapse(2) num_threads(threads) if (parallel : SHARED(B * T * P * H * D)) schedule(static)
    for (i64 b = 0; b < B; b++)
        for (i64 h = 0; h < H; h++)
            for (i64 p = 0; p < P; p++)
                for (i64 t = 0; t < T; t++) {
                    const bf16 *from = tokens + (((b * T + t) * P + p) * H + h) * D;
                    i64 row = ((p * B + b) * H + h) * T + t;
                    bf16 *to = heads + row * D;
                    if (p >= turned) {
                        memcpy(to, from, (size_t)D * sizeof(bf16));
                        continue;
                    }
                    float scaled[D], scale = 1.0f;
                    if (inverse) {
                        float square = 0.0f;
#pragma omp simd reduction(+ : square)
                        for (i64 d = 0; d < D; d++)
                            square += wide(from[d]) * wide(from[d]);
                        inverse[row] = scale = 1.0f / sqrtf(square / (float)D + epsilon);
                    }
#pragma omp simd
                    for (i64 d = 0; d < D; d++)
                        scaled[d] = wide(from[d]) * scale;
                    if (own)
                        turn(scaled, to, own + t * D, others + t * D, 0, D);
                    else
                        narrow_all(scaled, to, D);
                }
}

/* heads [P, B, H, T, D] to tokens [B, T, P, H, D]: gradients on their way back through `split_heads`, whose
 * result `turned_heads` is needed for the parts that it scaled. */
void merge_heads(const bf16 *heads, bf16 *tokens, const bf16 *turned_heads, const float *own,
                 const float *others, const float *inverse, i64 turned, i64 B, i64 T, i64 P, i64 H, i64 D,
                 int threads)
{
#pragma omp parallel for collapse(2) num_threads(threads) if (parallel : SHARED(B * T * P * H * D)) schedule(static)
    for (i64 b = 0; b < B; b++)
        for (i64 h = 0; h < H; h++)
            for (i64 p = 0; p < P; p++)
                for (i64 t = 0; t < T; t++) {
                    i64 row = ((p * B + b) * H + h) * T + t;
                    const bf16 *from = heads + row * D, *made = turned_heads + row * D;
                    bf16 *to = tokens + (((b * T + t) * P + p) * H + h) * D;
                    if (p >= turned) {
                        memcpy(to, from, (size_t)D * sizeof(bf16));
                        continue;
                    }
                    /* Turning keeps products, so the part along the result is found before it is turned back. */
                    float left[D], along = 0.0f, scale = 1.0f;
                    if (inverse) {
#pragma omp simd reduction(+ : along)
                        for (i64 d = 0; d < D; d++)
                            along += wide(from[d]) * wide(made[d]);
                        along /= (float)D;
                        scale = inverse[row];
                    }
#pragma omp simd
                    for (i64 d = 0; d < D; d++)
                        left[d] = scale * (wide(from[d]) - (inverse ? wide(made[d]) * along : 0.0f));
                    if (own)
                        turn(left, to, own + t * D, others + t * D, 1, D);
                    else
                        narrow_all(left, to, D);
                }
}

/* Keys up to which a query looks, rounded up so that no vector is cut; those beyond it weigh nothing. */
static inline i64 padded(i64 seen, i64 keys)
{
    i64 whole = (seen + 15) / 16 * 16;
    return whole < keys ? whole : keys;
}

/* scores [N, Q, K] become softmax(scale * scores) over the keys that each query sees: the q-th of a block sees
 * first + q + 1 of them, and the others get 0. */
void softmax(bf16 *scores, i64 N, i64 Q, i64 K, i64 first, float scale, int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(N * Q * K)) schedule(static)
    for (i64 row = 0; row < N * Q; row++) {
        bf16 *s = scores + row * K;
        i64 seen = first + row % Q + 1, looked = padded(seen, K);
        float largest = -INFINITY, sum = 0.0f, weights[K];
#pragma omp simd reduction(max : largest)
        for (i64 k = 0; k < looked; k++) {
            weights[k] = k < seen ? wide(s[k]) : -INFINITY;
            largest = weights[k] > largest ? weights[k] : largest;
        }
#pragma omp simd reduction(+ : sum)
        for (i64 k = 0; k < looked; k++) {
            weights[k] = exponential((weights[k] - largest) * scale);
            sum += weights[k];
        }
        float share = 1.0f / sum;
#pragma omp simd
        for (i64 k = 0; k < looked; k++)
            s[k] = narrow(weights[k] * share);
        memset(s + seen, 0, (size_t)(K - seen) * sizeof(bf16));
    }
}

/* g, the gradient of what `softmax` made, becomes that of the scores it was given. */
void softmax_back(const bf16 *probabilities, bf16 *g, i64 N, i64 Q, i64 K, i64 first, float scale, int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(N * Q * K)) schedule(static)
    for (i64 row = 0; row < N * Q; row++) {
        const bf16 *p = probabilities + row * K;
        bf16 *d = g + row * K;
        i64 looked = padded(first + row % Q + 1, K);
        float along = 0.0f;
#pragma omp simd reduction(+ : along)
        for (i64 k = 0; k < looked; k++)
            along += wide(p[k]) * wide(d[k]);
#pragma omp simd
        for (i64 k = 0; k < looked; k++)
            d[k] = narrow(wide(p[k]) * (wide(d[k]) - along) * scale);
        memset(d + looked, 0, (size_t)(K - looked) * sizeof(bf16));
    }
}

/* losses [R] of targets [R] in nats under logits [R, V]; these become, if asked, share * (softmax - one at the
 * target): the gradient of the sum of losses times share. */
void cross_entropy(bf16 *logits, const i64 *targets, float *losses, i64 R, i64 V, int gradient, float share,
                   int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(R * V)) schedule(static)
    for (i64 r = 0; r < R; r++) {
        bf16 *l = logits + r * V;
        if (targets[r] < 0 || targets[r] >= V) {
            losses[r] = NAN; /* no such token: the step's loss tells */
            continue;
        }
        float at = wide(l[targets[r]]), largest = -INFINITY, sum = 0.0f;
#pragma omp simd reduction(max : largest)
        for (i64 v = 0; v < V; v++)
            largest = wide(l[v]) > largest ? wide(l[v]) : largest;
#pragma omp simd reduction(+ : sum)
        for (i64 v = 0; v < V; v++)
            sum += exponential(wide(l[v]) - largest);
        losses[r] = logf(sum) + largest - at;
        if (!gradient)
            continue;
        float each = share / sum, own = exponential(at - largest) * each - share;
#pragma omp simd
        for (i64 v = 0; v < V; v++)
            l[v] = narrow(exponential(wide(l[v]) - largest) * each);
        l[targets[r]] = narrow(own);
    }
}
