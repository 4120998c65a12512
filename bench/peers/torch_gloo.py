# PyTorch's gloo as a peer of `lockstep bench all-reduce`: torch_gloo.py MOST_BYTES PROCESS FIRST, under torchrun. What round.h is to
# the others, in Python: the same orders, answers and ways of timing.
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

most_bytes, process, first = (int(argument) for argument in sys.argv[1:])
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
cores = sorted(os.sched_getaffinity(0))
if len(cores) >= ranks:
    os.sched_setaffinity(0, cores[rank::ranks])
torch.set_num_threads(1)
dist.init_process_group("gloo")
data = torch.zeros(most_bytes // 4, dtype=torch.float32)
orders = open(f"/proc/{process}/fd/{first + rank}")
answers = os.open(f"/proc/{process}/fd/{first + ranks}", os.O_WRONLY)


def answer(text):
    os.write(answers, text.encode())


dist.barrier()
if rank == 0:
    answer(f"= torch-gloo|{torch.__version__}\n")
for line in orders:
    _, size, is_fresh, operations, _ = line.split()
    part = data[: int(size) // 4]
    part.zero_()
    samples = []
    for i in range(-(int(operations) // 10 + 1), int(operations)):
        if int(is_fresh):
            part.fill_(1)
        start = time.perf_counter_ns()
        dist.all_reduce(part)
        taken = time.perf_counter_ns() - start
        if i >= 0:
            samples.append(taken)
    if int(is_fresh) and part[-1] != ranks:
        answer("! came to a wrong sum\n")
        break
    measured = f"{statistics.median_high(samples) / 1000:.3f} {min(samples) / 1000:.3f}\n"
    answer(measured if rank == 0 else "done\n")
