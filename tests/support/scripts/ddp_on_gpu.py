"""Trains with DistributedDataParallel on a device, and calls every collective with its tensors.

python ddp_on_gpu.py FOLDER DEVICE: DEVICE may be `local`, the GPU of LOCAL_RANK. Each rank writes
its model and the results of the collectives to FOLDER/RANK.pt.
"""

import os
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent))
from on_gpu import STEPS, loss_of, net, parameters_of

folder, device = sys.argv[1:]
if device == "pretend":
    runpy.run_path(str(Path(__file__).parents[1] / "pretend_gpu.py"))
if device == "local":
    device = f"cuda:{os.environ['LOCAL_RANK']}"
if device.startswith("cuda"):
    torch.cuda.set_device(device)
torch.set_default_device(device)  # as scripts do
dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = net(device)
ddp = DistributedDataParallel(model, bucket_cap_mb=0.0001)  # several buckets
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(STEPS):
    optimizer.zero_grad()
    loss_of(ddp, step, rank, device).backward()
    optimizer.step()

mine = torch.tensor([10.0 * rank, 10.0 * rank + 1], device="cpu").to(device)
found = {}
found["all_reduce"] = mine.clone()
dist.all_reduce(found["all_reduce"], op=dist.ReduceOp.AVG)
found["broadcast"] = mine.clone()
dist.broadcast(found["broadcast"], 0)
gathered = [torch.empty_like(mine) for _ in range(size)]
dist.all_gather(gathered, mine)
found["all_gather"] = torch.cat(gathered)
found["all_gather_into"] = mine.new_empty(2 * size)
dist.all_gather_into_tensor(found["all_gather_into"], mine)
found["reduce_scatter"] = mine.new_empty(2)
dist.reduce_scatter_tensor(found["reduce_scatter"], torch.cat([mine] * size))
found["all_to_all"] = mine.new_empty(2 * size)
dist.all_to_all_single(found["all_to_all"], torch.cat([mine + 100 * n for n in range(size)]))
said = [None] * size
dist.all_gather_object(said, {"rank": rank})
assert [each["rank"] for each in said] == list(range(size))
dist.barrier()
results = {name: value.cpu() for name, value in found.items()}
torch.save({"parameters": parameters_of(model), **results}, Path(folder) / f"{rank}.pt")
dist.destroy_process_group()
