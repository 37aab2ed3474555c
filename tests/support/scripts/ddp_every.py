"""Calls every collective of torch.distributed, in two processes, and checks its result."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OPS = dist.ReduceOp


def floats(*values):
    return torch.tensor(values, dtype=torch.float32)


def check(found, *values):
    assert found.tolist() == list(values), (found, values)


def reductions(rank):
    for op, result in ((OPS.SUM, 3), (OPS.MAX, 2), (OPS.MIN, 1), (OPS.PRODUCT, 2), (OPS.AVG, 1.5)):
        value = floats(rank + 1)
        dist.all_reduce(value, op)
        check(value, result)
    value = floats(rank)
    work = dist.all_reduce(value, async_op=True)
    work.wait()
    check(value, 1)
    assert work.is_completed()
    value = floats(rank)
    dist.all_reduce(value, async_op=True).get_future().wait()
    check(value, 1)
    value = floats(rank + 1)
    dist.reduce(value, 1)
    assert rank == 0 or value.item() == 3
    value = floats(0)
    dist.reduce_scatter(value, [floats(1), floats(rank)])
    check(value, [2, 1][rank])
    dist.reduce_scatter_tensor(value, floats(1, rank))
    check(value, [2, 1][rank])
    check(functional.wait_tensor(functional.all_reduce(floats(1), "sum", dist.group.WORLD)), 2)


def moves(rank):
    value = floats(rank)
    dist.broadcast(value, 1)
    check(value, 1)
    parts = [floats(-1), floats(-1)]
    dist.all_gather(parts, floats(rank))
    check(torch.cat(parts), 0, 1)
    row = torch.empty(4)
    dist.all_gather_into_tensor(row, floats(rank, rank))
    check(row, 0, 0, 1, 1)
    dist.gather(floats(rank + 5), parts if rank == 0 else None, 0)
    assert rank == 1 or torch.cat(parts).tolist() == [5, 6]
    dist.scatter(value, [floats(7), floats(8)] if rank == 1 else None, 1)
    check(value, 7 + rank)
    dist.all_to_all(parts, [floats(10 * rank), floats(10 * rank + 1)])
    check(torch.cat(parts), rank, 10 + rank)
    # Process 0 keeps 1 and 2 and gets 3; process 1 sends 3 and keeps 4.
    given, sizes, lengths = [(floats(1, 2), [2, 0], [2, 1]), (floats(3, 4), [1, 1], [0, 1])][rank]
    into = torch.zeros(sum(lengths))
    dist.all_to_all_single(into, given, lengths, sizes)
    check(into, *[(1, 2, 3), (4,)][rank])


def objects(rank):
    found = [None, None]
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": 0}, {"rank": 1}]
    found = [rank]
    dist.broadcast_object_list(found, 1)
    assert found == [1]
    dist.scatter_object_list(found, ["a", "b"] if rank == 0 else None)
    assert found == ["ab"[rank]]
    dist.barrier()
    dist.monitored_barrier()
    everyone, value = dist.new_group(), floats(1)
    dist.all_reduce(value, group=everyone)
    check(value, 2)
    dist.destroy_process_group(everyone)
    assert dist.get_backend() == "gloo"


def trains():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    model = DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        with model.no_sync():
            model(torch.randn(3, 4)).mean().backward()
        model(torch.randn(3, 4)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    for part in (reductions, moves, objects):
        part(rank)
    trains()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
