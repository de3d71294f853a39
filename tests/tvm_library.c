/* A library as TVM's compiler makes them: kernels, variables for the loader to fill, and the name of a
 * function of the host that is called by symbol. */
#define RELAXVM_KERNEL_TYPES_ONLY
#include <relaxvm/kernel.h>

#define SLOT __attribute__((weak, visibility("default")))

typedef struct {
  void *sync;
  int32_t num_task;
} Group;
typedef int (*Lambda)(int task, Group *group, void *data);

SLOT void *__tvm_ffi__library_ctx;
SLOT void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
SLOT int (*__TVMBackendFreeWorkspace)(int, int, void *);
SLOT int (*__TVMBackendParallelLaunch)(Lambda, void *, int);
SLOT int (*__TVMBackendParallelBarrier)(int, Group *);
SLOT int (*__TVMFFIEnvModLookupFromImports)(void *, const char *, void **);
SLOT int (*__TVMFFIFunctionCall)(void *, const RvmAny *, int32_t, RvmAny *);
SLOT int (*__TVMFFIHandleInitOnce)(void **, int (*)(void **));

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);

static int fail(const char *kind, const char *what, const char *where) {
  const char *parts[] = {what, NULL, " in ", where};
  TVMFFIErrorSetRaisedFromCStrParts(kind, parts, 4);
  return -1;
}

#define KERNEL(name) \
  __attribute__((visibility("default"))) int __tvm_ffi_##name(void *self, const RvmAny *args, int32_t count, RvmAny *ret)

/* double(x, out): through a workspace. */
KERNEL(double) {
  (void)self, (void)ret;
  if (count != 2 || args[0].type != RVM_TENSOR || args[1].type != RVM_TENSOR)
    return fail("TypeError", "expected two tensors", "double");
  const RvmTensor *x = args[0].as_tensor, *out = args[1].as_tensor;
  if (x->shape[0] != out->shape[0]) return fail("ValueError", "lengths differ", "double");
  if (((uintptr_t)x->data | (uintptr_t)out->data) & 15) return fail("ValueError", "misaligned", "double");
  int64_t n = x->shape[0];
  float *room = __TVMBackendAllocWorkspace(1, 0, (uint64_t)n * 4, 2, 32);
  if (room == NULL) return -1;
  if ((uintptr_t)room & 63) return fail("ValueError", "misaligned workspace", "double");
  for (int64_t i = 0; i < n; i++) room[i] = ((const float *)x->data)[i];
  for (int64_t i = 0; i < n; i++) ((float *)out->data)[i] = room[i] + room[i];
  return __TVMBackendFreeWorkspace(1, 0, room);
}

/* hungry(bytes): asks for a workspace. */
KERNEL(hungry) {
  (void)self, (void)ret, (void)count;
  void *room = __TVMBackendAllocWorkspace(1, 0, (uint64_t)args[0].as_int, 0, 8);
  return room == NULL ? -1 : __TVMBackendFreeWorkspace(1, 0, room);
}

typedef struct {
  const RvmTensor *out;
  int64_t rounds, fail_at;
  int64_t shared[256];
} Job;

/* Each task fills its part; with rounds, tasks pass numbers to their neighbours between barriers. */
static int fill(int task, Group *group, void *data) {
  Job *job = data;
  if (task == job->fail_at) return fail("IndexError", "this task fails", "fill");
  int64_t n = job->out->shape[0], *to = job->out->data;
  for (int64_t i = n * task / group->num_task; i < n * (task + 1) / group->num_task; i++) to[i] = i * i;
  int64_t mine = task;
  for (int64_t round = 0; round < job->rounds; round++) {
    job->shared[task] = mine;
    if (__TVMBackendParallelBarrier(task, group)) return -1;
    mine = job->shared[(task + 1) % group->num_task];
    if (__TVMBackendParallelBarrier(task, group)) return -1;
  }
  if (job->rounds && mine != (task + job->rounds) % group->num_task)
    return fail("RuntimeError", "a barrier let somebody through", "fill");
  return 0;
}

/* squares(out, tasks, rounds, fail_at) */
KERNEL(squares) {
  (void)self, (void)ret, (void)count;
  Job job = {args[0].as_tensor, args[2].as_int, args[3].as_int, {0}};
  return __TVMBackendParallelLaunch(fill, &job, (int)args[1].as_int);
}

static int nested_task(int task, Group *group, void *data) {
  (void)task, (void)group;
  return __TVMBackendParallelLaunch(fill, data, 0);
}

/* nested(out): a parallel loop in a parallel loop of one task */
KERNEL(nested) {
  (void)self, (void)ret, (void)count;
  Job job = {args[0].as_tensor, 0, -1, {0}};
  return __TVMBackendParallelLaunch(nested_task, &job, 1);
}

static void *callee;

static int find(void **found) {
  return __TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, "test.callee", found);
}

static int call_it(const RvmAny *args, int32_t count, RvmAny *ret) {
  if (callee == NULL && __TVMFFIHandleInitOnce(&callee, find)) return -1;
  return __TVMFFIFunctionCall(callee, args, count, ret);
}

/* calls(...): the function test.callee */
KERNEL(calls) {
  (void)self;
  return call_it(args, count, ret);
}

/* ignores(...): calls it twice, whatever comes of it */
KERNEL(ignores) {
  (void)self;
  call_it(args, count, ret);
  call_it(args, count, ret);
  return 0;
}

/* by_name(name, ...): the function of that name */
KERNEL(by_name) {
  void *function = NULL;
  (void)self;
  if (__TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, args[0].as_text, &function)) return -1;
  return __TVMFFIFunctionCall(function, args + 1, count - 1, ret);
}

static int call_task(int task, Group *group, void *data) {
  RvmAny ret = {0};
  (void)task, (void)group;
  return call_it(data, 1, &ret);
}

/* calls_in_parallel(x) */
KERNEL(calls_in_parallel) {
  (void)self, (void)ret, (void)count;
  return __TVMBackendParallelLaunch(call_task, (void *)args, 0);
}
