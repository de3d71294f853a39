/* Convolutions of images in blocks of channels (blocks.h).
 *
 *   direct     any window, stride and dilation: products of lines, the terms of which are blocks of input
 *              channels and taps of the window.  A window of one pixel is a matrix product.
 *   planes     the same from planes of pixels, for the first layer, which has few channels.
 *   gathered   a list of input channels for each block of outputs: groups whose channels are no whole
 *              blocks, and whose order is not that of memory.
 *   depthwise  each channel by itself: a window slides along the row, so that each pixel is loaded once for
 *              a row of taps.
 *   winograd   3x3 at stride 1 by F(4x4, 3x3), a quarter of the products: Lavin and Gray, "Fast algorithms
 *              for convolutional neural networks", 2016.
 *
 * The points of the Winograd transforms are 0, 1, -1, 1/2, -2 and infinity, which round less than the usual
 * 0, 1, -1, 2, -2 (Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution for
 * deep neural networks", 2020).
 */
#include "convolutions.h"

/* Pixels whose lines stay in the second-level cache while all outputs of them are computed, and bytes of those of which
 * an output takes a few channels of each line, which stay in the first-level one. */
#define PIXEL_RUN (RVM_TILE_PIXELS * 16)
#define GATHERED_BYTES 28000

RVM_TILES(next_pixel, RVM_BLOCK, RVM_BLOCK)
RVM_TILES(second_pixel, RVM_BLOCK, 2 * RVM_BLOCK)
RVM_TILES(strided_pixel, RVM_BLOCK, l->x_step)
RVM_TILES(next_of_plane, 1, 1)
RVM_TILES(second_of_plane, 1, 2)
RVM_TILES(strided_of_plane, 1, l->x_step)

/* Channels one by one, wherever they are. */
#define ONE_BLOCK_TILES(name, step)                                                  \
    RVM_EACH_PIXELS(RVM_TILE, name, 1, 1, step)                                      \
    static const RvmLinesTile name[RVM_TILE_PIXELS] = {RVM_EACH_PIXELS(RVM_TILE_ENTRY, name, 1, 1, step)};
ONE_BLOCK_TILES(next_channel, RVM_BLOCK)
ONE_BLOCK_TILES(strided_channel, l->x_step)

/* How long one thread takes, of sums of so many terms. */
static int64_t conv_time(const Conv *c, int64_t terms) {
    int64_t results = c->images * c->groups * c->outputs * RVM_BLOCK * c->rows * c->columns;
    return rvm_time_for(results * terms, results * 8);
}

/* ---- direct -------------------------------------------------------------------------------------- */
/* x[image, block, row, column, 16], weight[block of outputs, block of inputs, row, column, 16, 16] */
static int get_direct(const RvmKernelCall *call, Conv *c) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *out = x + 5;
    if (!is_block_of(x, 5) || x->dims[4] != RVM_BLOCK || !is_block_of(weight, 6) ||
        weight->dims[4] != RVM_BLOCK || weight->dims[5] != RVM_BLOCK ||
        !get_conv(call, weight->dims[2], weight->dims[3], c) || out->dims[1] != weight->dims[0] ||
        x->dims[1] % c->groups || out->dims[1] % c->groups)
        return 0;
    c->inputs = weight->dims[1];
    c->outputs = out->dims[1] / c->groups;
    return c->inputs == x->dims[1] / c->groups;
}

/* x[image, plane, row, column], weight[block of outputs, plane, row, column, 16] */
static int get_planes(const RvmKernelCall *call, Conv *c) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *out = x + 5;
    if (!is_block_of(x, 4) || !is_block_of(weight, 5) || weight->dims[4] != RVM_BLOCK ||
        !get_conv(call, weight->dims[2], weight->dims[3], c) || c->groups != 1 ||
        out->dims[1] != weight->dims[0] || x->dims[1] != weight->dims[1])
        return 0;
    c->inputs = weight->dims[1];
    c->outputs = out->dims[1];
    return 1;
}

/* Offsets of the terms, and a padded image. */
static int64_t terms_bytes(const Conv *c) { return rvm_aligned(c->inputs * c->tall * c->wide * 8); }

static int64_t direct_bytes(const Conv *c) {
    int64_t pixels = c->is_padded ? c->padded_height * c->padded_width : 0;
    return terms_bytes(c) + c->inputs * c->groups * pixels * LINE_BYTES;
}

static int64_t planes_bytes(const Conv *c) {
    int64_t pixels = c->is_padded ? c->padded_height * c->padded_width : 0;
    return terms_bytes(c) + c->inputs * pixels * 4;
}

static int64_t direct_workspace(const RvmKernelCall *call) {
    Conv c;
    return get_direct(call, &c) ? direct_bytes(&c) + 2 * RVM_ALIGNMENT : -1;
}

static int64_t planes_workspace(const RvmKernelCall *call) {
    Conv c;
    return get_planes(call, &c) ? planes_bytes(&c) + 2 * RVM_ALIGNMENT : -1;
}

/* Copy rows of a padded image (a block or a plane): from the `first` of them on, `item` floats a pixel. */
static void pad_rows(const Conv *c, const float *x, int64_t item, int64_t first, int64_t end, float *to) {
    int64_t row = c->padded_width * item, before = c->left * item, own = c->width * item;
    for (int64_t y = first - c->top; y < end - c->top; y++, to += row) {
        if (y < 0 || y >= c->height) {
            memset(to, 0, (size_t)row * 4);
            continue;
        }
        memset(to, 0, (size_t)before * 4);
        memcpy(to + before, x + y * own, (size_t)own * 4);
        memset(to + before + own, 0, (size_t)(row - before - own) * 4);
    }
}

/* Blocks or planes of an image that is padded. */
typedef struct {
    const Conv *c;
    const float *x;
    float *to;
    int64_t item;
    RvmGrid grid; /* of rows of it, and blocks or planes */
} Padding;

static int pad_parts(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Padding *p = (const Padding *)work;
    const Conv *c = p->c;
    RvmPart part = rvm_part(&p->grid, piece);
    int64_t row = c->padded_width * p->item;
    (void)thread;
    for (int64_t i = part.inner; i < part.inner_end; i++) {
        pad_rows(c, p->x + i * c->height * c->width * p->item, p->item, part.outer, part.outer_end,
                 p->to + (i * c->padded_height + part.outer) * row);
        if (rvm_must_stop(call, (part.outer_end - part.outer) * row * 16)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int pad(const RvmKernelCall *call, const Conv *c, const float *x, int64_t parts, int64_t item,
               float *to) {
    int64_t bytes = c->padded_height * c->padded_width * item * parts * 8;
    Padding p = {c, x, to, item, rvm_divide_rows(call, rvm_time_for(0, bytes), c->padded_height, parts)};
    return rvm_run_grid(call, &p.grid, pad_parts, &p);
}

/* Products of rows of results, or of runs of pixels where the window is one pixel, so that rows do not
 * matter. */
typedef struct {
    const Conv *c;
    const RvmLinesTile (*tiles)[RVM_TILE_PIXELS];
    RvmLines lines;
    const float *x;            /* the image (and group) that the rows begin with, padded */
    int64_t x_floats;          /* of a group of an image */
    int64_t row_floats;        /* from one row of windows to the next */
    int64_t first;             /* number of the group of an image that `x` is */
    int64_t rows, columns;     /* of such a group: rows of results, or runs of pixels */
    int64_t run;               /* pixels of a run */
    int are_pixels;
    int is_row_by_row;         /* all outputs of a row, then the next row; else the other way round */
    RvmGrid grid;              /* rows and tiles of outputs, or the other way round */
} Direct;

static int64_t output_tiles(const Conv *c) { return (c->outputs + RVM_TILE_BLOCKS - 1) / RVM_TILE_BLOCKS; }

/* The weights of a tile of outputs, for a row, counted over all groups of all images. */
static const float *weights_of(const Direct *d, int64_t row, int64_t tile) {
    int64_t group = (d->first + row / d->rows) % d->c->groups;
    return d->c->weight + (group * d->c->outputs + tile * RVM_TILE_BLOCKS) * d->lines.weight_block;
}

/* Say which weights are wanted after those of unit (i, j) of a part: of the next unit that has others, or else of
 * the piece that this thread will most likely have next. */
static void look_ahead(const Direct *d, RvmLines *l, const RvmPart *part, int64_t piece, int64_t i, int64_t j) {
    int is_last = i + 1 == part->outer_end && (!d->is_row_by_row || j + 1 == part->inner_end);
    if (is_last) {
        piece++;
        if (piece >= d->grid.outer_parts * d->grid.inner_parts) {
            l->next = NULL;
            return;
        }
        RvmPart later = rvm_part(&d->grid, piece);
        i = later.outer;
        if (d->is_row_by_row) j = later.inner;
    } else if (!d->is_row_by_row) {
        i++;
    } else if (++j == part->inner_end) {
        i++;
        j = part->inner;
    }
    int64_t row = d->is_row_by_row ? i : j, tile = d->is_row_by_row ? j : i;
    l->next = weights_of(d, row, tile);
}

/* One row, counted over all groups of all images, and one tile of outputs. */
static int run_row(const Direct *d, RvmLines *l, int64_t row, int64_t tile) {
    const Conv *c = d->c;
    int64_t group = row / d->rows, y = row % d->rows, o = tile * RVM_TILE_BLOCKS;
    int blocks = c->outputs - o >= RVM_TILE_BLOCKS ? RVM_TILE_BLOCKS : 1;
    int64_t output = (d->first + group) % c->groups * c->outputs + o;
    int64_t at = ((d->first + group) * c->outputs + o) * l->out_block, pixel = 0, pixels = d->columns;
    l->x = d->x + group * d->x_floats;
    if (d->are_pixels) {
        pixel = y * d->run;
        pixels = c->rows * c->columns - pixel < d->run ? c->rows * c->columns - pixel : d->run;
    } else {
        l->x += y * d->row_floats;
        at += y * c->columns * RVM_BLOCK;
    }
    l->weight = weights_of(d, row, tile);
    l->bias = c->bias ? c->bias + output * RVM_BLOCK : NULL;
    l->channel = output * RVM_BLOCK;
    l->out = c->out + at;
    l->residual = c->residual ? c->residual + at : NULL;
    return rvm_run_tiles(d->tiles[blocks - 1], l, pixel, pixels);
}

static int run_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Direct *d = (const Direct *)work;
    RvmPart part = rvm_part(&d->grid, piece);
    RvmLines l = d->lines;
    (void)thread;
    l.call = call;
    l.next_runs = d->is_row_by_row ? 1 : part.inner_end - part.inner;
    for (int64_t i = part.outer; i < part.outer_end; i++)
        for (int64_t j = part.inner; j < part.inner_end; j++) {
            look_ahead(d, &l, &part, piece, i, j);
            l.next_run = d->is_row_by_row ? 0 : j - part.inner;
            if (d->is_row_by_row ? run_row(d, &l, i, j) : run_row(d, &l, j, i)) return RVM_FAILED;
        }
    return RVM_OK;
}

/* Pixels of a run, at most so many of an image's.  Threads have runs of their own where the weights, which each of
 * them then reads, are at most twice the elements of an image: what one thread has written, another one reads
 * slowly. */
static int64_t run_of(const RvmKernelCall *call, int64_t pixels, int64_t most, int64_t images, int64_t weights,
                      int64_t image) {
    int64_t tiles = (pixels + RVM_TILE_PIXELS - 1) / RVM_TILE_PIXELS, of_run = most / RVM_TILE_PIXELS;
    int64_t runs = of_run > 1 ? (tiles + of_run - 1) / of_run : tiles;
    int64_t wanted = (call->threads + images - 1) / images;
    if (weights <= 2 * image && runs % wanted) runs += wanted - runs % wanted;
    if (runs > tiles) runs = tiles;
    return (tiles + runs - 1) / runs * RVM_TILE_PIXELS;
}

static int run_direct(const RvmKernelCall *call, const Conv *c, int item,
                      const RvmLinesTile (*tiles)[RVM_TILE_PIXELS]) {
    char *workspace = call->workspace;
    int64_t taps = c->tall * c->wide, terms = c->inputs * taps;
    int64_t *offsets = (int64_t *)rvm_take(&workspace, terms * 8), *offset = offsets;
    int64_t height = c->is_padded ? c->padded_height : c->height;
    int64_t width = c->is_padded ? c->padded_width : c->width;
    int64_t parts = c->inputs * c->groups, image = parts * height * width * item;
    float *padded = c->is_padded ? (float *)rvm_take(&workspace, image * 4) : NULL;
    for (int64_t i = 0; i < c->inputs; i++)
        for (int64_t ky = 0; ky < c->tall; ky++)
            for (int64_t kx = 0; kx < c->wide; kx++)
                *offset++ = ((i * height + ky * c->dilation_y) * width + kx * c->dilation_x) * item;
    Direct d = {.c = c,
                .tiles = tiles,
                .lines = {.terms = offsets,
                          .count = terms,
                          .whole = terms,
                          .x_step = c->stride_x * item,
                          .weight_block = terms * item * RVM_BLOCK,
                          .out_block = c->rows * c->columns * RVM_BLOCK,
                          .epilogue = c->epilogue},
                .x = c->x,
                .x_floats = c->inputs * height * width * item,
                .row_floats = c->stride_y * width * item,
                .rows = c->rows,
                .columns = c->columns,
                .are_pixels = taps == 1 && c->stride_x == 1 && c->stride_y == 1};
    if (item == RVM_BLOCK) {
        int64_t last = (c->inputs - 1) * taps, matrix = RVM_BLOCK * RVM_BLOCK;
        d.lines.left = rvm_used_channels(c->weight + last * matrix, c->outputs * c->groups, terms * matrix, taps);
        if (d.lines.left < RVM_BLOCK) d.lines.whole = last;
    }
    if (d.are_pixels) {
        int64_t pixels = c->rows * c->columns;
        d.run = run_of(call, pixels, PIXEL_RUN, c->images * c->groups, d.lines.weight_block * c->outputs,
                       c->inputs * RVM_BLOCK * pixels);
        d.rows = (pixels + d.run - 1) / d.run;
    }
    d.is_row_by_row = d.are_pixels || d.lines.weight_block * c->outputs * 4 <= CACHED_WEIGHTS;
    /* Without padding all images are at once. */
    int64_t sections = padded ? c->images : 1, time = conv_time(c, terms * item) / sections;
    int64_t rows = c->images / sections * c->groups * d.rows, columns = output_tiles(c);
    d.grid = d.is_row_by_row ? rvm_divide(call, time, rows, columns)
                             : rvm_divide(call, time, columns, rows);
    for (int64_t n = 0; n < sections; n++) {
        if (padded) {
            if (pad(call, c, c->x + n * parts * c->height * c->width * item, parts, item, padded))
                return RVM_FAILED;
            d.x = padded;
            d.first = n * c->groups;
        }
        if (rvm_run_grid(call, &d.grid, run_rows, &d)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int direct(const RvmKernelCall *call) {
    Conv c;
    if (!get_direct(call, &c)) return RVM_ASK_REFERENCE;
    return run_direct(call, &c, RVM_BLOCK,
                      c.stride_x == 1   ? next_pixel
                      : c.stride_x == 2 ? second_pixel
                                        : strided_pixel);
}

static int planes(const RvmKernelCall *call) {
    Conv c;
    if (!get_planes(call, &c)) return RVM_ASK_REFERENCE;
    return run_direct(call, &c, 1,
                      c.stride_x == 1   ? next_of_plane
                      : c.stride_x == 2 ? second_of_plane
                                        : strided_of_plane);
}

/* ---- gathered ------------------------------------------------------------------------------------ */
/* x[image, block, row, column, 16], weight[block of outputs, place, row, column, 16]; the fifth buffer,
 * channels[block of outputs, place], says which input channel is at a place: of the first `count` places,
 * until one is negative. */
static int get_gathered(const RvmKernelCall *call, Conv *c) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *channels = x + 4, *out = x + 6;
    if (!is_block_of(x, 5) || x->dims[4] != RVM_BLOCK || !is_block_of(weight, 5) ||
        weight->dims[4] != RVM_BLOCK || !get_conv(call, weight->dims[2], weight->dims[3], c) ||
        c->groups != 1 || out->dims[1] != weight->dims[0] || channels->ndim != 2 ||
        channels->dtype != RVM_DTYPE_I64 || !rvm_is_contiguous(channels) ||
        channels->dims[0] != weight->dims[0] || channels->dims[1] != weight->dims[1] ||
        !rvm_no_overlap(channels, out))
        return 0;
    c->inputs = x->dims[1];
    c->outputs = out->dims[1];
    return 1;
}

static int64_t places_of(const RvmKernelCall *call) { return call->buffers[1].dims[1]; }

static int64_t gathered_workspace(const RvmKernelCall *call) {
    Conv c;
    if (!get_gathered(call, &c)) return -1;
    int64_t pixels = c.is_padded ? c.padded_height * c.padded_width : 0;
    /* One more than the weights have lines: how many terms there are. */
    return rvm_aligned(c.outputs * (places_of(call) * c.tall * c.wide + 1) * 8) +
           c.inputs * pixels * LINE_BYTES + 2 * RVM_ALIGNMENT;
}

/* The terms of each block of outputs, preceded by their number.  Return whether all channels are there. */
static int gather_terms(const RvmKernelCall *call, const Conv *c, int64_t height, int64_t width,
                        int64_t *terms) {
    int64_t places = places_of(call), taps = c->tall * c->wide;
    const volatile int64_t *channel = (const volatile int64_t *)call->buffers[4].data;
    for (int64_t o = 0; o < c->outputs; o++, terms += places * taps + 1) {
        int64_t *term = terms + 1;
        for (int64_t i = 0; i < places; i++) {
            int64_t at = channel[o * places + i];
            if (at < 0) break;
            if (at >= c->inputs * RVM_BLOCK) return 0;
            int64_t first = at / RVM_BLOCK * height * width * RVM_BLOCK + at % RVM_BLOCK;
            for (int64_t ky = 0; ky < c->tall; ky++)
                for (int64_t kx = 0; kx < c->wide; kx++)
                    *term++ = first + (ky * c->dilation_y * width + kx * c->dilation_x) * RVM_BLOCK;
        }
        *terms = term - terms - 1;
    }
    return 1;
}

/* Rows of results, or where the window is one pixel all of them as one. */
typedef struct {
    const Conv *c;
    const RvmLinesTile *tiles;
    RvmLines lines;
    const float *x;                     /* an image, or all of them */
    const int64_t *terms;               /* of all outputs */
    int64_t most;                       /* terms of an output */
    int64_t image_floats, row_floats, first, rows, columns, runs, run;
    RvmGrid grid;                       /* runs of pixels of rows, and outputs */
} Gathered;

static int run_gathered(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Gathered *g = (const Gathered *)work;
    const Conv *c = g->c;
    RvmPart part = rvm_part(&g->grid, piece);
    RvmLines l = g->lines;
    int64_t area = c->rows * c->columns * RVM_BLOCK;
    (void)thread;
    l.call = call;
    for (int64_t i = part.outer; i < part.outer_end; i++) {
        int64_t n = i / g->runs / g->rows, y = i / g->runs % g->rows, p = i % g->runs * g->run;
        int64_t some = g->columns - p < g->run ? g->columns - p : g->run;
        for (int64_t o = part.inner; o < part.inner_end; o++) {
            int64_t at = ((g->first + n) * c->outputs + o) * area + y * g->columns * RVM_BLOCK;
            const int64_t *own = g->terms + o * (g->most + 1);
            l.terms = own + 1;
            l.count = *own;
            l.weight = c->weight + o * g->most * RVM_BLOCK;
            l.weight_block = l.count * RVM_BLOCK;
            l.bias = c->bias ? c->bias + o * RVM_BLOCK : NULL;
            l.channel = o * RVM_BLOCK;
            l.x = g->x + n * g->image_floats + y * g->row_floats;
            l.out = c->out + at;
            l.residual = c->residual ? c->residual + at : NULL;
            if (rvm_run_tiles(g->tiles, &l, p, some)) return RVM_FAILED;
        }
    }
    return RVM_OK;
}

static int gathered(const RvmKernelCall *call) {
    Conv c;
    if (!get_gathered(call, &c)) return RVM_ASK_REFERENCE;
    char *workspace = call->workspace;
    int64_t most = places_of(call) * c.tall * c.wide, step = c.stride_x * RVM_BLOCK;
    int64_t height = c.is_padded ? c.padded_height : c.height;
    int64_t width = c.is_padded ? c.padded_width : c.width;
    int64_t *terms = (int64_t *)rvm_take(&workspace, c.outputs * (most + 1) * 8), count = 0;
    float *padded = c.is_padded ? (float *)rvm_take(&workspace, 0) : NULL;
    if (!gather_terms(call, &c, height, width, terms)) return RVM_ASK_REFERENCE;
    for (int64_t o = 0; o < c.outputs; o++) count += terms[o * (most + 1)];
    /* A window of one pixel does not see rows: they are one. */
    int are_pixels = c.tall == 1 && c.wide == 1 && c.stride_x == 1 && c.stride_y == 1 && !padded;
    Gathered g = {.c = &c,
                  .tiles = step == RVM_BLOCK ? next_channel : strided_channel,
                  .lines = {.whole = INT64_MAX, .x_step = step, .epilogue = c.epilogue},
                  .x = c.x,
                  .terms = terms,
                  .most = most,
                  .image_floats = c.inputs * height * width * RVM_BLOCK,
                  .row_floats = c.stride_y * width * RVM_BLOCK,
                  .rows = are_pixels ? 1 : c.rows,
                  .columns = are_pixels ? c.rows * c.columns : c.columns};
    /* Without padding all images are at once. */
    int64_t sections = padded ? c.images : 1;
    g.run = run_of(call, g.columns, GATHERED_BYTES / (c.inputs * LINE_BYTES), c.images / sections * g.rows,
                   count * RVM_BLOCK, c.inputs * RVM_BLOCK * g.rows * g.columns);
    g.runs = (g.columns + g.run - 1) / g.run;
    int64_t time = conv_time(&c, count / c.outputs) / sections;
    g.grid = rvm_divide(call, time, c.images / sections * g.rows * g.runs, c.outputs);
    for (int64_t n = 0; n < sections; n++) {
        if (padded) {
            if (pad(call, &c, c.x + n * c.inputs * c.height * c.width * RVM_BLOCK, c.inputs, RVM_BLOCK, padded))
                return RVM_FAILED;
            g.x = padded;
            g.first = n;
        }
        if (rvm_run_grid(call, &g.grid, run_gathered, &g)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* ---- depthwise ----------------------------------------------------------------------------------- */
/* x[image, block, row, column, 16], weight[block, row, column, 16] */
static int get_depthwise(const RvmKernelCall *call, Conv *c) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *out = x + 5;
    if (!is_block_of(x, 5) || x->dims[4] != RVM_BLOCK || !is_block_of(weight, 4) ||
        weight->dims[3] != RVM_BLOCK || !get_conv(call, weight->dims[1], weight->dims[2], c) ||
        weight->dims[0] != x->dims[1] || x->dims[1] != out->dims[1] || c->groups != 1)
        return 0;
    c->inputs = c->outputs = x->dims[1];
    return 1;
}

/* The results of one row of windows, some pixels from one on, whose windows are on the image from left to
 * right.  `taps` rows of the window are on the image. */
typedef struct {
    const float *x;                    /* the first tap of the first pixel */
    const float *weight;               /* its weights */
    const float *bias, *residual;      /* of the first pixel; may be NULL */
    float *out;
    int64_t taps, row_floats, weight_row;
    int64_t window, step, apart;       /* taps of a row; floats from one pixel to the next, and from tap to tap */
    RvmEpilogue epilogue;
} Slide;

/* Pixels at once: as many as are left, of these. */
#define SLIDE_PIXELS 7
#define SOME_PIXELS 4

static inline __attribute__((always_inline)) void finish_slide(const Slide *s, int lane, vf *sum, int pixels) {
#pragma GCC unroll 8
    for (int i = 0; i < pixels; i++) {
        if (s->residual) sum[i] += rvm_load(s->residual + i * RVM_BLOCK + lane);
        rvm_store(s->out + i * RVM_BLOCK + lane, rvm_bounded(sum[i], &s->epilogue));
    }
}

/* Windows whose taps follow each other: a pixel of the image is read once, for all results that it counts for. */
static inline __attribute__((always_inline)) void slide(const Slide *s, int lane, int window, int stride,
                                                        int pixels) {
    const float *x = s->x + lane, *w = s->weight + lane;
    int64_t rows = s->taps, row_floats = s->row_floats, weight_row = s->weight_row;
    vf sum[SLIDE_PIXELS], start = s->bias ? rvm_load(s->bias + lane) : rvm_all(0);
#pragma GCC unroll 8
    for (int i = 0; i < pixels; i++) sum[i] = start;
    for (int64_t ky = 0; ky < rows; ky++) {
        vf weight[7];
#pragma GCC unroll 8
        for (int kx = 0; kx < window; kx++) weight[kx] = rvm_load(w + kx * RVM_BLOCK);
#pragma GCC unroll 24
        for (int i = 0; i < (pixels - 1) * stride + window; i++) {
            vf value = rvm_load(x + i * RVM_BLOCK);
#pragma GCC unroll 8
            for (int kx = 0; kx < window; kx++)
                if (i >= kx && (i - kx) % stride == 0 && (i - kx) / stride < pixels)
                    sum[(i - kx) / stride] = rvm_fma(weight[kx], value, sum[(i - kx) / stride]);
        }
        x += row_floats;
        w += weight_row;
    }
    finish_slide(s, lane, sum, pixels);
}

/* Any window and any distances: each result reads its taps by itself. */
static inline __attribute__((always_inline)) void stride_over(const Slide *s, int lane, int pixels) {
    const float *x = s->x + lane, *w = s->weight + lane;
    int64_t step = s->step, apart = s->apart, window = s->window;
    vf sum[SLIDE_PIXELS], start = s->bias ? rvm_load(s->bias + lane) : rvm_all(0);
#pragma GCC unroll 8
    for (int i = 0; i < pixels; i++) sum[i] = start;
    for (int64_t ky = 0; ky < s->taps; ky++) {
        for (int64_t kx = 0; kx < window; kx++) {
            vf weight = rvm_load(w + kx * RVM_BLOCK);
#pragma GCC unroll 8
            for (int i = 0; i < pixels; i++)
                sum[i] = rvm_fma(weight, rvm_load(x + kx * apart + i * step), sum[i]);
        }
        x += s->row_floats;
        w += s->weight_row;
    }
    finish_slide(s, lane, sum, pixels);
}

typedef void (*SlideCall)(const Slide *, int lane);

/* For each number of pixels, the most first. */
#define SLIDES 3
static const int slide_pixels[SLIDES] = {SLIDE_PIXELS, SOME_PIXELS, 1};

#define SLIDE(window, stride, pixels)                                                         \
    static void slide_##window##_##stride##_##pixels(const Slide *s, int lane) {              \
        slide(s, lane, window, stride, pixels);                                               \
    }
#define SLIDE_OF(window, stride)                                                              \
    SLIDE(window, stride, 7) SLIDE(window, stride, 4) SLIDE(window, stride, 1)                \
    static const SlideCall slide_##window##_##stride[SLIDES] = {                              \
        slide_##window##_##stride##_7, slide_##window##_##stride##_4, slide_##window##_##stride##_1};
SLIDE_OF(3, 1)
SLIDE_OF(3, 2)
SLIDE_OF(5, 1)
SLIDE_OF(5, 2)
SLIDE_OF(7, 1)
SLIDE_OF(7, 2)

#define STRIDE_OVER(pixels)                                                                   \
    static void stride_over_##pixels(const Slide *s, int lane) { stride_over(s, lane, pixels); }
STRIDE_OVER(7) STRIDE_OVER(4) STRIDE_OVER(1)
static const SlideCall over[SLIDES] = {stride_over_7, stride_over_4, stride_over_1};

static const SlideCall *slide_of(const Conv *c) {
    if (c->dilation_x != 1 || c->stride_x > 2) return over;
    switch (c->wide * 2 + c->stride_x) {
        case 7: return slide_3_1;
        case 8: return slide_3_2;
        case 11: return slide_5_1;
        case 12: return slide_5_2;
        case 15: return slide_7_1;
        case 16: return slide_7_2;
        default: return over;
    }
}

/* One pixel: the taps of its window that are on the image. */
static void tap_by_tap(const Conv *c, const float *x, const float *weight, int64_t y, int64_t column,
                       int lane, vf *sum) {
    for (int64_t ky = 0; ky < c->tall; ky++) {
        int64_t row = y * c->stride_y + ky * c->dilation_y - c->top;
        if (row < 0 || row >= c->height) continue;
        for (int64_t kx = 0; kx < c->wide; kx++) {
            int64_t at = column * c->stride_x + kx * c->dilation_x - c->left;
            if (at < 0 || at >= c->width) continue;
            *sum = rvm_fma(rvm_load(weight + (ky * c->wide + kx) * RVM_BLOCK + lane),
                           rvm_load(x + (row * c->width + at) * RVM_BLOCK + lane), *sum);
        }
    }
}

/* Pixels from `begin` to `end` have whole windows from left to right. */
static void whole_windows(const Conv *c, int64_t *begin, int64_t *end) {
    int64_t reach = (c->wide - 1) * c->dilation_x + 1, room = c->width + c->left - reach;
    *begin = (c->left + c->stride_x - 1) / c->stride_x;
    *end = room < 0 ? 0 : room / c->stride_x + 1;
    if (*begin > c->columns) *begin = c->columns;
    if (*end > c->columns) *end = c->columns;
}

static int depthwise_row(const RvmKernelCall *call, const Conv *c, const SlideCall *slides,
                         const float *x, const float *weight, int64_t channel,
                         const float *bias, int64_t y, const float *residual, float *out) {
    int64_t first = y * c->stride_y - c->top, above = 0, taps = c->tall;
    while (above < c->tall && first + above * c->dilation_y < 0) above++;
    while (taps > above && first + (taps - 1) * c->dilation_y >= c->height) taps--;
    int64_t begin, end;
    whole_windows(c, &begin, &end);
    Slide s = {.weight = weight + above * c->wide * RVM_BLOCK,
               .bias = bias,
               .taps = taps - above,
               .row_floats = c->dilation_y * c->width * RVM_BLOCK,
               .weight_row = c->wide * RVM_BLOCK,
               .window = c->wide,
               .step = c->stride_x * RVM_BLOCK,
               .apart = c->dilation_x * RVM_BLOCK,
               .epilogue = c->epilogue};
    for (int64_t p = 0; p < c->columns;) {
        int64_t at = p * RVM_BLOCK;
        int count = 1;
        if (p >= begin && p < end) {
            int which = p + SLIDE_PIXELS <= end ? 0 : p + SOME_PIXELS <= end ? 1 : 2;
            count = slide_pixels[which];
            s.x = x + ((first + above * c->dilation_y) * c->width + p * c->stride_x - c->left) * RVM_BLOCK;
            s.residual = residual ? residual + at : NULL;
            s.out = out + at;
            for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) slides[which](&s, lane);
        } else {
            for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
                vf sum = bias ? rvm_load(bias + lane) : rvm_all(0);
                tap_by_tap(c, x, weight, y, p, lane, &sum);
                if (residual) sum += rvm_load(residual + at + lane);
                rvm_store(out + at + lane, rvm_bounded(sum, &c->epilogue));
            }
        }
        p += count;
        if (rvm_must_stop(call, c->tall * c->wide * count * RVM_BLOCK * 4)) return 1;
    }
    if (!c->epilogue.is_more) return 0;
    rvm_finish(&c->epilogue, channel, out, c->columns);
    return rvm_must_stop(call, c->columns * RVM_FINISH_WORK);
}

/* Whether each block is copied with its padding: then all windows are whole.  A tap of a window at an edge takes the
 * time of some lines that are copied. */
#define LINES_OF_TAP 4
static int is_copied(const Conv *c) {
    int64_t begin, end;
    whole_windows(c, &begin, &end);
    int64_t at_edges = end > begin ? c->columns - (end - begin) : c->columns;
    return c->is_padded && at_edges * c->tall * c->wide * LINES_OF_TAP > c->padded_width * c->stride_y;
}

static RvmGrid depthwise_grid(const RvmKernelCall *call, const Conv *c) {
    int64_t results = c->images * c->inputs * RVM_BLOCK * c->rows * c->columns;
    int64_t time = rvm_time_for(results * c->tall * c->wide, results * 8);
    return rvm_divide_rows(call, time, c->images * c->rows, c->inputs);
}

static int64_t copy_bytes(const Conv *c) {
    return is_copied(c) ? rvm_apart(c->padded_height * c->padded_width * LINE_BYTES) : 0;
}

static int64_t depthwise_workspace(const RvmKernelCall *call) {
    Conv c;
    if (!get_depthwise(call, &c)) return -1;
    return depthwise_grid(call, &c).threads * copy_bytes(&c) + RVM_ALIGNMENT;
}

typedef struct {
    const Conv *c;
    char *copies;
    RvmGrid grid;
} Depthwise;

/* Whether no weight of a block of channels is infinite or NaN. */
static int are_finite(const float *weight, int64_t taps) {
    vf sum = rvm_all(0);
    for (int64_t i = 0; i < taps * RVM_BLOCK; i += RVM_LANES) sum = rvm_fma(rvm_load(weight + i), rvm_all(0), sum);
    for (int lane = 0; lane < RVM_LANES; lane++)
        if (sum[lane] != 0) return 0;
    return 1;
}

/* Rows of results of one block of channels.  Weights that are not finite are not multiplied by padding, which
 * would give NaN. */
static int depthwise_rows(const RvmKernelCall *call, const Depthwise *d, const RvmRows *rows, int64_t b,
                          float *copy) {
    const Conv *c = d->c;
    Conv own = *c; /* sees what is copied as the image */
    int64_t number = rows->image * c->inputs + b, channels = b * RVM_BLOCK, skipped = 0;
    const float *x = c->x + number * c->height * c->width * RVM_BLOCK;
    if (copy && are_finite(c->weight + channels * c->tall * c->wide, c->tall * c->wide)) {
        int64_t first = rows->first * c->stride_y;
        skipped = rows->first;
        own.height = (rows->end - rows->first - 1) * c->stride_y + (c->tall - 1) * c->dilation_y + 1;
        own.width = c->padded_width;
        own.top = own.left = 0;
        pad_rows(c, x, RVM_BLOCK, first, first + own.height, copy);
        x = copy;
        if (rvm_must_stop(call, own.height * own.width * RVM_BLOCK * 16)) return RVM_FAILED;
    }
    for (int64_t y = rows->first; y < rows->end; y++) {
        int64_t at = (number * c->rows + y) * c->columns * RVM_BLOCK;
        if (depthwise_row(call, &own, slide_of(c), x, c->weight + channels * c->tall * c->wide, channels,
                          c->bias ? c->bias + channels : NULL, y - skipped,
                          c->residual ? c->residual + at : NULL, c->out + at))
            return RVM_FAILED;
    }
    return RVM_OK;
}

static int run_depthwise(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Depthwise *d = (const Depthwise *)work;
    RvmPart part = rvm_part(&d->grid, piece);
    RvmRows rows;
    float *copy = is_copied(d->c) ? (float *)(d->copies + thread * copy_bytes(d->c)) : NULL;
    while (rvm_take_rows(&part, d->c->rows, &rows))
        for (int64_t b = part.inner; b < part.inner_end; b++)
            if (depthwise_rows(call, d, &rows, b, copy)) return RVM_FAILED;
    return RVM_OK;
}

static int depthwise(const RvmKernelCall *call) {
    Conv c;
    if (!get_depthwise(call, &c)) return RVM_ASK_REFERENCE;
    char *workspace = call->workspace;
    Depthwise d = {&c, is_copied(&c) ? rvm_take(&workspace, 0) : NULL, depthwise_grid(call, &c)};
    return rvm_run_grid(call, &d.grid, run_depthwise, &d);
}

/* ---- winograd ------------------------------------------------------------------------------------ */
#define TRANSFORMED 6                           /* points along an axis */
#define PLANES (TRANSFORMED * TRANSFORMED)
#define RESULTS 4                               /* pixels along an axis */
#define MOST_TILES 196
#define FEWEST_TILES 56
#define TRANSFORM_BYTES (3 << 20)               /* of the larger one of both sides, if that allows FEWEST_TILES */
#define PLANE_GAP 3                             /* lines: planes that begin in one set of the cache would
                                                   displace each other */

/* x[image, block, row, column, 16], weight[36, block of outputs, block of inputs, 16, 16] */
static int get_winograd(const RvmKernelCall *call, Conv *c) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *out = x + 5;
    if (!is_block_of(x, 5) || x->dims[4] != RVM_BLOCK || !is_block_of(weight, 5) ||
        weight->dims[0] != PLANES || weight->dims[3] != RVM_BLOCK || weight->dims[4] != RVM_BLOCK ||
        !get_conv(call, 3, 3, c) || out->dims[1] != weight->dims[1] || x->dims[1] != weight->dims[2] ||
        c->groups != 1 || c->stride_x != 1 || c->stride_y != 1 || c->dilation_x != 1 ||
        c->dilation_y != 1)
        return 0;
    c->inputs = x->dims[1];
    c->outputs = out->dims[1];
    return 1;
}

static int64_t tiles_of(const Conv *c) {
    return c->images * ((c->rows + RESULTS - 1) / RESULTS) * ((c->columns + RESULTS - 1) / RESULTS);
}

/* How the tiles are divided.  Where there are many, each thread has parts of its own: transforms, products
 * and transforms back.  Else the threads do each of these together, for one part after the other. */
typedef struct {
    int64_t tiles, parts;
    int64_t at_once;        /* tiles of a part, at most */
    int are_alone;          /* whether a thread has a part for itself */
    RvmGrid grid;           /* of parts */
} Plan;

static int64_t plane_floats(int64_t blocks, int64_t tiles) {
    return (blocks * tiles + PLANE_GAP) * RVM_BLOCK;
}

/* Multiplications of a part, nearly. */
static int64_t winograd_time(const Conv *c, int64_t tiles) {
    int64_t lines = tiles * PLANES * RVM_BLOCK;
    return rvm_time_for(lines * c->inputs * c->outputs * RVM_BLOCK, lines * (c->inputs + c->outputs) * 8);
}

static Plan plan_of(const RvmKernelCall *call, const Conv *c) {
    Plan p = {.tiles = tiles_of(c)};
    int64_t larger = c->inputs > c->outputs ? c->inputs : c->outputs;
    int64_t tiles = TRANSFORM_BYTES / (PLANES * larger * LINE_BYTES);
    tiles = tiles < FEWEST_TILES ? FEWEST_TILES : tiles > MOST_TILES ? MOST_TILES : tiles;
    p.parts = (p.tiles + tiles - 1) / tiles;
    int64_t share = p.tiles / call->threads; /* of a thread */
    if (call->threads > 1 && share >= FEWEST_TILES &&
        winograd_time(c, p.tiles) >= RVM_SMALLEST_SECTION) {
        /* As many parts for each thread. */
        p.are_alone = 1;
        p.parts = (p.parts + call->threads - 1) / call->threads * call->threads;
    }
    p.at_once = (p.tiles + p.parts - 1) / p.parts;
    p.grid = rvm_divide(call, winograd_time(c, p.tiles), p.parts, 1);
    /* A part is a piece. */
    p.grid.outer_parts = p.parts;
    if (!p.are_alone) p.grid.threads = 1;
    return p;
}

/* The transforms of a part. */
static int64_t part_bytes(const Conv *c, int64_t tiles) {
    return rvm_apart(rvm_aligned(c->inputs * 8) + rvm_aligned(PLANES * plane_floats(c->inputs, tiles) * 4) +
                     rvm_aligned(PLANES * plane_floats(c->outputs, tiles) * 4));
}

static int64_t winograd_workspace(const RvmKernelCall *call) {
    Conv c;
    if (!get_winograd(call, &c)) return -1;
    Plan plan = plan_of(call, &c);
    return plan.grid.threads * part_bytes(&c, plan.at_once) + RVM_ALIGNMENT;
}

/* to = the transform of six elements of a row or column of the image; `step` vectors from one to the
 * next. */
static inline void transform_image(const vf *d, int from_step, vf *to, int to_step) {
    vf d0 = d[0], d1 = d[from_step], d2 = d[2 * from_step], d3 = d[3 * from_step],
       d4 = d[4 * from_step], d5 = d[5 * from_step];
    vf half = rvm_all(0.5f), two = rvm_all(2.0f), three_halves = rvm_all(1.5f),
       five_halves = rvm_all(2.5f);
    to[0] = rvm_fma(three_halves, d3 - d1, rvm_fma(-two, d2, d0 + d4));
    to[to_step] = rvm_fma(five_halves, d3, rvm_fma(half, d2, d4 - d1));
    to[2 * to_step] = rvm_fma(-five_halves, d2, rvm_fma(half, d3, d4 + d1));
    to[3 * to_step] = rvm_fma(two, d3 - d1, d4 - d2);
    to[4 * to_step] = rvm_fma(half, d1 - d3, d4 - d2);
    to[5 * to_step] = rvm_fma(three_halves, d4 - d2, rvm_fma(-two, d3, d1 + d5));
}

/* to = four results of six products */
static inline void transform_back(const vf *m, int from_step, vf *to, int to_step) {
    vf m3 = m[3 * from_step], m4 = m[4 * from_step];
    vf sum = m[from_step] + m[2 * from_step], difference = m[from_step] - m[2 * from_step];
    to[0] = m[0] + sum + (m3 + m4);
    to[to_step] = rvm_fma(rvm_all(0.5f), m3, rvm_fma(rvm_all(-2.0f), m4, difference));
    to[2 * to_step] = rvm_fma(rvm_all(0.25f), m3, rvm_fma(rvm_all(4.0f), m4, sum));
    to[3 * to_step] = rvm_fma(rvm_all(0.125f), m3, rvm_fma(rvm_all(-8.0f), m4, difference)) +
                      m[5 * from_step];
}

/* Where a tile is. */
typedef struct {
    int64_t image, row, column; /* of its first result */
} Tile;

static inline Tile tile_at(const Conv *c, int64_t number) {
    int64_t across = (c->columns + RESULTS - 1) / RESULTS, down = (c->rows + RESULTS - 1) / RESULTS;
    Tile tile = {number / (across * down), number / across % down * RESULTS,
                 number % across * RESULTS};
    return tile;
}

static void transform_tile(const Conv *c, Tile tile, int64_t block, float *to, int64_t plane) {
    const float *x = c->x + (tile.image * c->inputs + block) * c->height * c->width * RVM_BLOCK;
    int64_t top = tile.row - c->top, left = tile.column - c->left;
    int is_inside = top >= 0 && left >= 0 && top + TRANSFORMED <= c->height &&
                    left + TRANSFORMED <= c->width;
    for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
        vf half[PLANES]; /* rows transformed */
        for (int i = 0; i < TRANSFORMED; i++) {
            vf row[TRANSFORMED];
            int64_t y = top + i;
            const float *from = x + (y * c->width + left) * RVM_BLOCK + lane;
            if (is_inside) {
#pragma GCC unroll 6
                for (int j = 0; j < TRANSFORMED; j++) row[j] = rvm_load(from + j * RVM_BLOCK);
            } else {
                int is_row = y >= 0 && y < c->height;
                for (int j = 0; j < TRANSFORMED; j++)
                    row[j] = is_row && left + j >= 0 && left + j < c->width
                                 ? rvm_load(from + j * RVM_BLOCK)
                                 : rvm_all(0);
            }
            transform_image(row, 1, half + i * TRANSFORMED, 1);
        }
        for (int j = 0; j < TRANSFORMED; j++) {
            vf column[TRANSFORMED];
            transform_image(half + j, TRANSFORMED, column, 1);
#pragma GCC unroll 6
            for (int i = 0; i < TRANSFORMED; i++)
                rvm_store(to + (i * TRANSFORMED + j) * plane + lane, column[i]);
        }
    }
}

static void transform_tile_back(const Conv *c, Tile tile, int64_t block, const float *from,
                                int64_t plane) {
    int64_t image = (tile.image * c->outputs + block) * c->rows * c->columns * RVM_BLOCK;
    int rows = (int)(c->rows - tile.row < RESULTS ? c->rows - tile.row : RESULTS);
    int columns = (int)(c->columns - tile.column < RESULTS ? c->columns - tile.column : RESULTS);
    for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
        vf half[RESULTS * TRANSFORMED]; /* columns transformed */
        vf bias = c->bias ? rvm_load(c->bias + block * RVM_BLOCK + lane) : rvm_all(0);
        for (int j = 0; j < TRANSFORMED; j++) {
            vf column[TRANSFORMED];
#pragma GCC unroll 6
            for (int i = 0; i < TRANSFORMED; i++)
                column[i] = rvm_load(from + (i * TRANSFORMED + j) * plane + lane);
            transform_back(column, 1, half + j, TRANSFORMED);
        }
        for (int i = 0; i < rows; i++) {
            vf row[RESULTS];
            transform_back(half + i * TRANSFORMED, 1, row, 1);
            int64_t at = image + ((tile.row + i) * c->columns + tile.column) * RVM_BLOCK + lane;
            for (int j = 0; j < columns; j++) {
                vf result = row[j] + bias;
                if (c->residual) result += rvm_load(c->residual + at + j * RVM_BLOCK);
                rvm_store(c->out + at + j * RVM_BLOCK, rvm_bounded(result, &c->epilogue));
            }
        }
    }
    if (!c->epilogue.is_more) return;
    for (int i = 0; i < rows; i++)
        rvm_finish(&c->epilogue, block * RVM_BLOCK,
                   c->out + image + ((tile.row + i) * c->columns + tile.column) * RVM_BLOCK, columns);
}

/* A part of the tiles on its way. */
typedef struct {
    const Conv *c;
    int64_t first, tiles;
    int64_t v_plane, m_plane; /* floats */
    int64_t *terms;
    int64_t left;             /* channels of the last block of inputs */
    float *v, *m;
    RvmGrid grid;             /* of the step that is under way */
} Step;

static int transform(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Step *s = (const Step *)work;
    RvmPart part = rvm_part(&s->grid, piece);
    (void)thread;
    for (int64_t b = part.inner; b < part.inner_end; b++) {
        for (int64_t t = part.outer; t < part.outer_end; t++)
            transform_tile(s->c, tile_at(s->c, s->first + t), b, s->v + (b * s->tiles + t) * RVM_BLOCK,
                           s->v_plane);
        if (rvm_must_stop(call, (part.outer_end - part.outer) * PLANES * 256)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int multiply(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Step *s = (const Step *)work;
    const Conv *c = s->c;
    RvmPart part = rvm_part(&s->grid, piece);
    int64_t weight_block = c->inputs * RVM_BLOCK * RVM_BLOCK;
    RvmLines l = {.terms = s->terms,
                  .count = c->inputs,
                  .whole = s->left < RVM_BLOCK ? c->inputs - 1 : c->inputs,
                  .left = s->left,
                  .weight_block = weight_block,
                  .out_block = s->tiles * RVM_BLOCK,
                  .epilogue = RVM_NO_EPILOGUE,
                  .call = call};
    (void)thread;
    for (int64_t z = part.outer; z < part.outer_end; z++) {
        l.x = s->v + z * s->v_plane;
        for (int64_t tile = part.inner; tile < part.inner_end; tile++) {
            int64_t o = tile * RVM_TILE_BLOCKS;
            int blocks = c->outputs - o >= RVM_TILE_BLOCKS ? RVM_TILE_BLOCKS : 1;
            l.weight = c->weight + (z * c->outputs + o) * weight_block;
            /* The next tile's weights follow, also those of the next plane. */
            int is_last = z + 1 == part.outer_end && tile + 1 == part.inner_end;
            l.next = is_last ? NULL : l.weight + blocks * weight_block;
            l.next_runs = 1;
            l.out = s->m + z * s->m_plane + o * l.out_block;
            if (rvm_run_tiles(next_pixel[blocks - 1], &l, 0, s->tiles)) return RVM_FAILED;
        }
    }
    return RVM_OK;
}

static int transform_back_to_images(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Step *s = (const Step *)work;
    RvmPart part = rvm_part(&s->grid, piece);
    (void)thread;
    for (int64_t o = part.inner; o < part.inner_end; o++) {
        for (int64_t t = part.outer; t < part.outer_end; t++)
            transform_tile_back(s->c, tile_at(s->c, s->first + t), o,
                                s->m + (o * s->tiles + t) * RVM_BLOCK, s->m_plane);
        if (rvm_must_stop(call, (part.outer_end - part.outer) * PLANES * 256)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* All steps of the tiles `first` to `last`, on `call`'s threads. */
static int run_part(const RvmKernelCall *call, const Conv *c, int64_t first, int64_t last, int64_t left,
                    char *workspace) {
    int64_t tiles = last - first, blocks = c->inputs + c->outputs;
    int64_t time = winograd_time(c, tiles), lines = rvm_time_for(0, tiles * PLANES * LINE_BYTES * 2);
    Step s = {.c = c,
              .first = first,
              .tiles = tiles,
              .left = left,
              .v_plane = plane_floats(c->inputs, tiles),
              .m_plane = plane_floats(c->outputs, tiles)};
    s.terms = (int64_t *)rvm_take(&workspace, c->inputs * 8);
    s.v = (float *)rvm_take(&workspace, PLANES * s.v_plane * 4);
    s.m = (float *)rvm_take(&workspace, PLANES * s.m_plane * 4);
    for (int64_t b = 0; b < c->inputs; b++) s.terms[b] = b * tiles * RVM_BLOCK;
    s.grid = rvm_divide_rows(call, lines * c->inputs, tiles, c->inputs);
    if (rvm_run_grid(call, &s.grid, transform, &s)) return RVM_FAILED;
    s.grid = rvm_divide(call, time - lines * blocks, PLANES, output_tiles(c));
    if (rvm_run_grid(call, &s.grid, multiply, &s)) return RVM_FAILED;
    s.grid = rvm_divide_rows(call, lines * c->outputs, tiles, c->outputs);
    return rvm_run_grid(call, &s.grid, transform_back_to_images, &s);
}

typedef struct {
    const Conv *c;
    const Plan *plan;
    int64_t left;
    char *workspace;
} Winograd;

static int run_part_alone(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Winograd *w = (const Winograd *)work;
    const Plan *p = w->plan;
    RvmKernelCall own = *call;
    if (p->are_alone) own.threads = 1;
    return run_part(&own, w->c, p->tiles * piece / p->parts, p->tiles * (piece + 1) / p->parts, w->left,
                    w->workspace + thread * part_bytes(w->c, p->at_once));
}

static int winograd(const RvmKernelCall *call) {
    Conv c;
    if (!get_winograd(call, &c)) return RVM_ASK_REFERENCE;
    char *workspace = call->workspace;
    Plan plan = plan_of(call, &c);
    int64_t matrix = RVM_BLOCK * RVM_BLOCK, block = c.inputs * matrix;
    Winograd w = {&c, &plan, rvm_used_channels(c.weight + block - matrix, PLANES * c.outputs, block, 1),
                  rvm_take(&workspace, 0)};
    return rvm_run_grid(call, &plan.grid, run_part_alone, &w);
}

static const RvmArgument gathered_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_BUFFER(TENSOR),
    RVM_FIELD(INTS, ConvParams, strides),
    RVM_FIELD(INTS, ConvParams, padding),
    RVM_FIELD(INTS, ConvParams, dilation),
    RVM_FIELD(INT, ConvParams, groups),
    RVM_FIELD(REAL_OR_NONE, ConvParams, low),
    RVM_FIELD(REAL_OR_NONE, ConvParams, high),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD_OF(rvm_functions, CHOICE_OR_NONE, ConvParams, function),
    RVM_FIELD(REAL_OR_NONE, ConvParams, scale),
    RVM_FIELD(REAL_OR_NONE, ConvParams, shift),
    RVM_BUFFER(OUT),
};

#define CONVOLUTION(method, of, memory, kinds)                                                \
    {.name = "convolution." #method, .kernel = "nn." of, .run = method, .workspace = memory,  \
     RVM_ARGUMENTS(kinds), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32),                            \
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = RVM_SUM_ULP}

const RvmImplementation RVM_NAME(rvm_convolution)[] = {
    CONVOLUTION(direct, "conv2d_blocks", direct_workspace, conv_arguments),
    CONVOLUTION(planes, "conv2d_blocks", planes_workspace, conv_arguments),
    CONVOLUTION(gathered, "conv2d_gathered_blocks", gathered_workspace, gathered_arguments),
    CONVOLUTION(depthwise, "conv2d_depthwise_blocks", depthwise_workspace, conv_arguments),
    CONVOLUTION(winograd, "conv2d_winograd_blocks", winograd_workspace, conv_arguments),
    {.name = NULL},
};
