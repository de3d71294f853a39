"""PrimFuncs with loops around, before and within products, of four rows and twelve columns."""

from relaxvm.script import tir as T


@T.prim_func
def terms_in_another_order(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for i, j, k in T.grid(4, 12, 9):
        C[i, j] = C[i, j] + A[i, (k * 7) % 9] * B[(k + 5) % 9, 11 - j]


@T.prim_func
def rows_by_value(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for i, j, k in T.grid(4, 12, 9):
        C[i, j] = C[i, j] + A[T.Cast("int32", A[i, 0]) % 4, k] * B[k, j]


@T.prim_func
def until_enough(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    A[0, 0] = T.float32(0)
    while A[0, 0] < T.float32(3):
        for i, j, k in T.grid(4, 12, 9):
            C[i, j] = C[i, j] + A[i, k] * B[k, j]
        A[0, 0] = A[0, 0] + T.float32(1)


@T.prim_func
def more_terms_each_time(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for t in range(10):
        for k, i, j in T.grid(t, 4, 12):
            C[i, j] = C[i, j] - A[i, k] * B[k, j]


@T.prim_func
def several_times(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for r, i, j, k in T.grid(3, 4, 12, 9):
        C[i, j] = C[i, j] + A[i, k] * B[k, j] * A[r, 0]


@T.prim_func
def begun_several_times(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for r in range(3):
        for i, j in T.grid(4, 12):
            C[i, j] = A[i, r]
            for k in range(9):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]


@T.prim_func
def begun_with_an_operand(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for i in range(4):
        for j in range(12):
            C[i, j] = B[i, j] * T.float32(2)
        for k, j in T.grid(9, 12):
            C[i, j] = C[i, j] + A[i, k] * B[k, j]


@T.prim_func
def rows_from_the_end(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for i, k, j in T.grid(4, 9, 12):
        C[3 - i, j] = C[3 - i, j] + A[i, k] * B[k, j]


@T.prim_func
def operand_is_the_result(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for i, j, k in T.grid(4, 12, 9):
        C[i, j] = C[i, j] + C[i, k] * B[k, j]


@T.prim_func
def recurrence(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for k, i, j in T.grid(9, 3, 11):
        C[i + 1, j + 1] = C[i + 1, j + 1] + C[i, j] * B[k, j]


@T.prim_func
def rows_below(
    A: T.Buffer((4, 9), "float32"), B: T.Buffer((9, 12), "float32"), C: T.Buffer((4, 12), "float32")
):
    for t in range(4):
        for i, j, k in T.grid(t, 12, 9):
            C[i, j] = C[i, j] + A[t, k] * B[k, j] + A[i, 0]


IN_TILES = (terms_in_another_order, rows_by_value, until_enough, more_terms_each_time,
            several_times, begun_several_times, begun_with_an_operand)  # fmt: skip
IN_LOOPS = (rows_from_the_end, operand_is_the_result, recurrence, rows_below)
