"""PrimFuncs that together use every construct of TIR that the lowerings support."""

from relaxvm.script import tir as T


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle):
    T.func_attr({"tirx.noalias": True})
    n, k, m = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (n, k), "float32")
    B = T.match_buffer(b, (k, m), "float32")
    C = T.match_buffer(c, (n, m), "float32")
    for i, j, x in T.grid(n, m, k):
        with T.sblock("matmul"):
            vi, vj, vl = T.axis.remap("SSR", [i, j, x])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vl] * B[vl, vj]


@T.prim_func
def transposed_matmul(a: T.handle, b: T.handle, c: T.handle):
    n, k, m = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, k), "float32")
    B = T.match_buffer(b, (m, k), "float32")
    C = T.match_buffer(c, (n, m), "float32")
    for i, j, x in T.grid(n, m, k):
        with T.sblock("matmul"):
            vi, vj, vl = T.axis.remap("SSR", [i, j, x])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vl] * B[vj, vl]


@T.prim_func
def softmax(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n, m), "float32")
    greatest = T.sblock_alloc_buffer((n,), "float32")
    total = T.sblock_alloc_buffer((n,), "float32")
    for i, j in T.grid(n, m):
        with T.sblock("greatest"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                greatest[vi] = T.min_value("float32")
            greatest[vi] = T.max(greatest[vi], A[vi, vj])
    for i, j in T.grid(n, m):
        with T.sblock("exp"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.exp(A[vi, vj] - greatest[vi])
    for i, j in T.grid(n, m):
        with T.sblock("total"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] = total[vi] + B[vi, vj]
    for i, j in T.grid(n, m):
        with T.sblock("divide"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = B[vi, vj] / total[vi]


@T.prim_func
def conv2d(
    X: T.Buffer((1, 3, 9, 8), "float32"),
    W: T.Buffer((4, 3, 3, 3), "float32"),
    Y: T.Buffer((1, 4, 4, 8), "float32"),
):
    padded = T.sblock_alloc_buffer((1, 3, 11, 10), "float32")
    for n, c, h, w in T.grid(1, 3, 11, 10):
        with T.sblock("pad"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            padded[vn, vc, vh, vw] = T.if_then_else(
                1 <= vh and vh < 10 and 1 <= vw and vw < 9,
                X[vn, vc, vh - 1, vw - 1],
                T.float32(0),
            )
    for n, f, h, w, c, i, j in T.grid(1, 4, 4, 8, 3, 3, 3):
        with T.sblock("conv"):
            vn, vf, vh, vw, vc, vi, vj = T.axis.remap("SSSSRRR", [n, f, h, w, c, i, j])
            with T.init():
                Y[vn, vf, vh, vw] = T.float32(0)
            Y[vn, vf, vh, vw] = (
                Y[vn, vf, vh, vw] + padded[vn, vc, vh * 2 + vi, vw + vj] * W[vf, vc, vi, vj]
            )


@T.prim_func
def concat(a: T.handle, b: T.handle, c: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n,), "int32")
    B = T.match_buffer(b, (m,), "int32")
    C = T.match_buffer(c, (n + m,), "int32")
    for i in range(n + m):
        with T.sblock("concat"):
            vi = T.axis.spatial(n + m, i)
            C[vi] = T.if_then_else(vi < n, A[vi], B[vi - n])


@T.prim_func
def gather(a: T.handle, i: T.handle, b: T.handle):
    n, m, k = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    I = T.match_buffer(i, (k,), "int64")  # noqa: E741
    B = T.match_buffer(b, (k, m), "float32")
    for x, y in T.grid(k, m):
        B[x, y] = A[I[x], y]


@T.prim_func
def scatter(i: T.handle, b: T.handle):
    n, k = T.int32(), T.int32()
    I = T.match_buffer(i, (k,), "int32")  # noqa: E741
    B = T.match_buffer(b, (n,), "int32")
    for x in range(k):
        B[I[x]] = B[I[x]] + 1


@T.prim_func
def reversed_rows(a: T.handle, b: T.handle):
    n, m = T.int32(), T.int32()
    A = T.match_buffer(a, (n, m), "uint8")
    B = T.match_buffer(b, (n, m), "uint8")
    for i, j in T.grid(n, m):
        B[i, j] = A[n - 1 - i, m - 1 - j]


@T.prim_func
def running_sum(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float64")
    B = T.match_buffer(b, (n,), "float64")
    for i in range(n):
        with T.sblock("sum"):
            vi = T.axis.scan(n, i)
            if vi == 0:
                B[vi] = A[vi]
            else:
                B[vi] = B[vi - 1] + A[vi]


@T.prim_func
def total(a: T.handle, s: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    S = T.match_buffer(s, (), "float32")
    for i in range(n):
        with T.sblock("total"):
            vi = T.axis.reduce(n, i)
            with T.init():
                S[()] = T.float32(0)
            S[()] = S[()] + A[vi]


@T.prim_func
def integer_arithmetic(
    A: T.Buffer((7,), "int32"), B: T.Buffer((7,), "int32"), C: T.Buffer((14, 7), "int32")
):
    for i in range(7):
        C[0, i] = A[i] + B[i]
        C[1, i] = A[i] - B[i]
        C[2, i] = A[i] * B[i]
        C[3, i] = T.truncdiv(A[i], B[i])
        C[4, i] = T.truncmod(A[i], B[i])
        C[5, i] = A[i] // B[i]
        C[6, i] = A[i] % B[i]
        C[7, i] = T.max(A[i], B[i])
        C[8, i] = T.min(A[i], B[i])
        C[9, i] = A[i] & B[i]
        C[10, i] = A[i] | B[i]
        C[11, i] = A[i] ^ B[i]
        C[12, i] = ~A[i]
        C[13, i] = T.abs(A[i])


@T.prim_func
def small_integers(
    A: T.Buffer((6,), "int8"), B: T.Buffer((6,), "int8"), C: T.Buffer((6, 6), "int8")
):
    for i in range(6):
        C[0, i] = A[i] + B[i]
        C[1, i] = A[i] * B[i]
        C[2, i] = A[i] << T.int8(3)
        C[3, i] = A[i] >> T.int8(2)
        C[4, i] = (A[i] + B[i]) // T.int8(3)
        C[5, i] = T.Cast("int8", T.Cast("int32", A[i]) * 1000)


@T.prim_func
def shifts(A: T.Buffer((5,), "int64"), B: T.Buffer((5,), "int64"), C: T.Buffer((4, 5), "int64")):
    for i in range(5):
        C[0, i] = A[i] << B[i]
        C[1, i] = A[i] >> B[i]
        C[2, i] = T.popcount(A[i])
        C[3, i] = T.Cast("int64", T.clz(A[i]))


@T.prim_func
def unsigned(
    A: T.Buffer((5,), "uint64"), B: T.Buffer((5,), "uint64"), C: T.Buffer((6, 5), "uint64")
):
    for i in range(5):
        C[0, i] = A[i] + B[i]
        C[1, i] = A[i] - B[i]
        C[2, i] = A[i] // B[i]
        C[3, i] = A[i] % B[i]
        C[4, i] = A[i] >> T.uint64(60)
        C[5, i] = T.Select(A[i] < B[i], A[i], T.Cast("uint64", i))


@T.prim_func
def casts(
    A: T.Buffer((9,), "float32"),
    to8: T.Buffer((9,), "int8"),
    to32: T.Buffer((9,), "int32"),
    to64: T.Buffer((9,), "int64"),
    unsigned: T.Buffer((9,), "uint16"),
    half: T.Buffer((9,), "float16"),
    double: T.Buffer((9,), "float64"),
    truth: T.Buffer((9,), "bool"),
    back: T.Buffer((9,), "float32"),
):
    for i in range(9):
        to8[i] = T.Cast("int8", A[i])
        to32[i] = T.Cast("int32", A[i])
        to64[i] = T.Cast("int64", A[i])
        unsigned[i] = T.Cast("uint16", A[i])
        half[i] = T.Cast("float16", A[i])
        double[i] = T.Cast("float64", A[i])
        truth[i] = T.Cast("bool", A[i])
        back[i] = T.Cast("float32", half[i]) + T.Cast("float32", truth[i]) + T.Cast("float32", i)


@T.prim_func
def half_precision(
    A: T.Buffer((64,), "float16"), B: T.Buffer((64,), "float16"), C: T.Buffer((5, 64), "float16")
):
    for i in range(64):
        C[0, i] = A[i] + B[i]
        C[1, i] = A[i] * B[i] - A[i]
        C[2, i] = A[i] / B[i]
        C[3, i] = T.sqrt(T.abs(A[i]))
        C[4, i] = T.max(A[i], B[i])


@T.prim_func
def float_arithmetic(
    A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((16, 64), "float32")
):
    for i in range(64):
        C[0, i] = A[i] + B[i] * A[i]
        C[1, i] = A[i] - B[i]
        C[2, i] = A[i] / B[i]
        C[3, i] = T.max(A[i], B[i])
        C[4, i] = T.min(A[i], B[i])
        C[5, i] = T.floor(A[i])
        C[6, i] = T.ceil(A[i])
        C[7, i] = T.trunc(A[i])
        C[8, i] = T.round(A[i])
        C[9, i] = T.fabs(A[i])
        C[10, i] = T.sqrt(T.fabs(A[i]))
        C[11, i] = T.rsqrt(T.fabs(A[i]))
        C[12, i] = T.fmod(A[i], B[i])
        C[13, i] = T.copysign(A[i], B[i])
        C[14, i] = T.if_then_else(T.isnan(A[i]), T.float32(1), T.floor(A[i] / B[i]))
        C[15, i] = A[i] - T.floor(A[i] / B[i]) * B[i]


@T.prim_func
def functions(A: T.Buffer((64,), "float32"), C: T.Buffer((18, 64), "float32")):
    for i in range(64):
        C[0, i] = T.exp(A[i])
        C[1, i] = T.log(A[i])
        C[2, i] = T.tanh(A[i])
        C[3, i] = T.sigmoid(A[i])
        C[4, i] = T.erf(A[i])
        C[5, i] = T.sin(A[i])
        C[6, i] = T.cos(A[i])
        C[7, i] = T.tan(A[i])
        C[8, i] = T.pow(A[i], T.float32(1.5))
        C[9, i] = T.log2(A[i])
        C[10, i] = T.log10(A[i])
        C[11, i] = T.log1p(A[i])
        C[12, i] = T.exp2(A[i])
        C[13, i] = T.atan(A[i])
        C[14, i] = T.sinh(A[i])
        C[15, i] = T.cosh(A[i])
        C[16, i] = T.atan2(A[i], T.float32(2))
        C[17, i] = T.asinh(A[i])


@T.prim_func
def control(a: T.handle, limit: T.float32, times: T.int32, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in T.parallel(n):
        x = A[i]
        count = T.int32(0)
        while x < limit and count < times:
            x = x * T.float32(2)
            count += 1
        if x < limit:
            B[i] = x
        else:
            if count == 0:
                B[i] = T.float32(-1)
            else:
                y: T.let = x - limit
                B[i] = y + T.Cast("float32", count)


@T.prim_func
def loops(A: T.Buffer((40,), "int32"), start: T.int64, stop: T.int64):
    for i in range(1, 40, 3):
        A[i] = i
    for i in T.unroll(4):
        for j in T.vectorized(2):
            A[i * 2 + j] = A[i * 2 + j] + 100
    for i in T.thread_binding(3, thread="threadIdx.x"):
        A[i + 30] = i
    for i in T.serial(start, stop, annotations={"hint": 1}):
        A[i] = A[i] + 1000


@T.prim_func
def matched(A: T.Buffer((4, 6, 5), "float32")):
    for i, j in T.grid(4, 3):
        with T.sblock("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            part = T.match_buffer(
                A[vi, vj * 2 : vj * 2 + 2, 0:5], (2, 5), "float32", offset_factor=1
            )
            for x, y in T.grid(2, 5):
                with T.sblock("inner"):
                    vx, vy = T.axis.remap("SS", [x, y])
                    part[vx, vy] = part[vx, vy] * T.float32(2) + T.Cast("float32", vx)


@T.prim_func
def predicated(A: T.Buffer((10,), "int32")):
    for i, j in T.grid(3, 4):
        with T.sblock("tile"):
            T.where(i * 4 + j < 10)
            v = T.axis.spatial(10, i * 4 + j)
            A[v] = v * v


@T.prim_func
def blocked_sum(A: T.Buffer((4, 8), "int64"), B: T.Buffer((4,), "int64")):
    for i, k, j in T.grid(4, 2, 4):
        with T.sblock("sum"):
            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(8, k * 4 + j)
            with T.init():
                B[vi] = T.int64(0)
            B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def big_local(A: T.Buffer((64, 64), "float64"), B: T.Buffer((64, 64), "float64")):
    C = T.alloc_buffer((64, 64), "float64")
    for i, j in T.grid(64, 64):
        C[i, j] = A[j, i]
    for i, j in T.grid(64, 64):
        B[i, j] = C[i, j] + A[i, j]


@T.prim_func
def checked(n: T.int32, B: T.Buffer((4,), "int32")):
    assert n > 0, ("ValueError", ["n has to be ", "positive"])
    B[0] = 12 // n
    B[n] = 1


@T.prim_func
def answer(n: T.int64) -> T.int64:
    if n > 3:
        return n * 2
    return n - 1


@T.prim_func
def logic(A: T.Buffer((8,), "bool"), B: T.Buffer((8,), "bool"), C: T.Buffer((6, 8), "bool")):
    for i in range(8):
        C[0, i] = A[i] and B[i]
        C[1, i] = A[i] or B[i]
        C[2, i] = not A[i]
        C[3, i] = A[i] == B[i]
        C[4, i] = T.Select(A[i], B[i], True)
        C[5, i] = i > 2 and A[i - 3]


@T.prim_func
def bits(A: T.Buffer((6,), "float32"), B: T.Buffer((6,), "int32"), C: T.Buffer((6,), "float32")):
    v = T.float32()
    for i in range(6):
        B[i] = T.reinterpret("int32", A[i]) ^ 1
        C[i] = T.Let(v * v, where={v: T.reinterpret("float32", B[i])})
