"""peer_ddp.py [BATCH [ROUNDS]]: a training step of ResNet-18 on images [3,32,32] by PyTorch's DistributedDataParallel over gloo, two processes
of one thread each; and by one process of two threads.  What bench_group measures, in another library.  Medians, ms."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from peer_torch import resnet18


def train(net, images, rounds, together):
    x = torch.randn(images, 3, 32, 32).to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (images,))
    net = net.to(memory_format=torch.channels_last)
    if together:
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    times = []
    for _ in range(rounds + 2):
        if together:
            dist.barrier()
        begin = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        if together:
            dist.barrier()
        times.append(time.monotonic() - begin)
    return 1e3 * statistics.median(times[2:])


def rank(number, batch, rounds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    dist.init_process_group("gloo", rank=number, world_size=2)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[number % os.cpu_count()]})
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ms = train(resnet18(3), batch // 2, rounds, True)
    if number == 0:
        print(f"DistributedDataParallel, 2 processes: {ms:.1f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    batch, rounds = [int(a) for a in sys.argv[1:]] + [64, 11][len(sys.argv) - 1:]
    processes.spawn(rank, (batch, rounds), nprocs=2)
    torch.set_num_threads(2)
    print(f"one process, 2 threads: {train(resnet18(3), batch, rounds, False):.1f} ms")
