"""MLP 784-500-500-10 with Adam in PyTorch: training examples a second from memory, batch 32 and 512.

usage: mlp.py [--repeats N] [--threads N] [--compile] [--denormals]

Cases: the three forms of the optimizer, one loop over tensors (adam), over lists of them (foreach), fused.
"""
import torch
from torch import nn

import measure

POOL = 64


def main():
    args = measure.options(__doc__)
    for batch, steps in ((32, 200), (512, 40)):
        torch.manual_seed(100)
        pool = [(torch.rand(batch, 784), torch.randint(0, 10, (batch,))) for _ in range(POOL)]
        for name in ("adam", "foreach", "fused"):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=name == "foreach", fused=name == "fused")
            measure.train(args, "mlp", "batch=%d %s" % (batch, name), model, optimizer, nn.CrossEntropyLoss(), pool,
                          steps)


if __name__ == "__main__":
    main()
