"""Times a llama.cpp library, as run.py tells it; runs in the peer's own environment.

    worker.py llama|ik MODEL THREADS CONTEXT fa,nofa

The protocol is that of `quire bench model --serve`: the first line of stdin has the token ids, and
"ready" is the answer. Then `feed MODE n` appends tokens until there are n, `decode MODE n` appends n
more, one per call, and `cut MODE n` removes all but the first n; each is answered by its seconds.
Every mode has a context of its own, with keys and values in f16; all share the weights.
"""
import ctypes
import sys
import time

BATCH = 512
F16 = 1  # GGML_TYPE_F16


def llama_library():
    import llama_cpp as c

    def set_flash(params, is_on):
        params.flash_attn_type = 1 if is_on else 0

    def cut(context, length):
        return c.llama_memory_seq_rm(c.llama_get_memory(context), 0, length, -1)

    return c, c.llama_synchronize, set_flash, cut


def ik_library():
    from ik_llama_cpp import _ctypes_api as c
    remove = c._lib.llama_kv_cache_seq_rm
    remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
    remove.restype = ctypes.c_bool
    synchronize = c._lib.llama_synchronize
    synchronize.argtypes, synchronize.restype = [ctypes.c_void_p], None

    def set_flash(params, is_on):
        params.flash_attn = is_on

    return c, synchronize, set_flash, lambda context, length: remove(context, 0, length, -1)


class Subject:
    """A context that holds one sequence."""

    def __init__(self, library, model, threads, size, is_flash, ids):
        self.c, self.synchronize, set_flash, self.remove = library
        params = self.c.llama_context_default_params()
        params.n_ctx = size
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = F16
        set_flash(params, is_flash)
        self.context = self.c.llama_init_from_model(model, params)
        if not self.context:
            sys.exit("no context")
        self.batch = self.c.llama_batch_init(BATCH, 0, 1)
        self.ids, self.length = ids, 0

    def cut(self, length):
        if length < self.length and not self.remove(self.context, length):
            sys.exit(f"cannot cut to {length}")
        self.length = min(length, self.length)

    def fill(self, count, wants_logits):
        """Makes the batch the next `count` tokens."""
        batch = self.batch
        batch.n_tokens = count
        for i in range(count):
            batch.token[i] = self.ids[self.length + i]
            batch.pos[i] = self.length + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = wants_logits and i == count - 1

    def append(self, end, step):
        """Seconds of the calls that compute. The last token of `end`, or each for step 1, gets
        logits, which are there when llama_get_logits_ith returns."""
        seconds = 0.0
        while self.length < end:
            count = min(step, end - self.length)
            wants_logits = step == 1 or self.length + count == end
            self.fill(count, wants_logits)
            begin = time.perf_counter()
            status = self.c.llama_decode(self.context, self.batch)
            if wants_logits:
                self.c.llama_get_logits_ith(self.context, count - 1)
            self.synchronize(self.context)
            seconds += time.perf_counter() - begin
            if status != 0:
                sys.exit(f"llama_decode answers {status} at {self.length}")
            self.length += count
        return seconds


def main():
    name, path, threads, size, modes = sys.argv[1:]
    library = {"llama": llama_library, "ik": ik_library}[name]()
    c = library[0]
    c.llama_backend_init()
    params = c.llama_model_default_params()
    params.n_gpu_layers = 0
    model = c.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit(f"{path} cannot be loaded")
    ids = [int(word) for word in sys.stdin.readline().split()]
    # Contexts are multiples of 256.
    size = -(-int(size) // 256) * 256
    subjects = {mode: Subject(library, model, int(threads), size, mode == "fa", ids)
                for mode in modes.split(",")}
    print("ready", flush=True)
    for line in sys.stdin:
        verb, mode, count = line.split()
        subject, count, seconds = subjects[mode], int(count), 0.0
        if verb == "feed":
            seconds = subject.append(count, BATCH)
        elif verb == "decode":
            seconds = subject.append(subject.length + count, 1)
        elif verb == "cut":
            subject.cut(count)
        else:
            sys.exit(f"unknown: {line}")
        print(f"{seconds:.9f}", flush=True)


if __name__ == "__main__":
    main()
