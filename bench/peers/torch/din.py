"""DIN with Adagrad in PyTorch: training examples a second from memory, batch 512, histories of 1 to 20 padded to 20.

usage: din.py [--repeats N] [--threads N] [--compile] [--denormals]

Cases: 100 and 1,000,000 items; embedding gradients sparse, dense, or dense with the fused optimizer. Ids are
uniform, so sparse gradients of a large table touch what a real batch would.
"""
import torch
from torch import nn

import measure

BATCH, LENGTH, POOL = 512, 20, 64
USERS, AGES, GENDERS = 10000, 8, 100


def mlp(*widths, dropout=0.0):
    layers = []
    for width, units in zip(widths, widths[1:-1]):
        layers += [nn.Linear(width, units), nn.ReLU()] + [nn.Dropout(dropout)] * (dropout > 0)
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


class Din(nn.Module):
    def __init__(self, items, sparse):
        super().__init__()
        self.age = nn.Embedding(AGES, 2, sparse=sparse)
        self.gender = nn.Embedding(GENDERS, 4, sparse=sparse)
        self.user = nn.Embedding(USERS, 16, sparse=sparse)
        self.item = nn.Embedding(items, 16, sparse=sparse)
        self.attention = mlp(64, 16, 8, 1)
        self.hidden = mlp(54, 64, 16, 1, dropout=0.3)

    def forward(self, age, gender, user, item, history, padding):
        target = self.item(item)
        h = self.item(history)
        t = target.unsqueeze(1).expand_as(h)
        score = self.attention(torch.cat((h, h - t, t, h * t), 2)).squeeze(2)
        weight = torch.softmax(score.masked_fill(padding, -2.0 ** 32 + 1), 1)
        attended = torch.bmm(weight.unsqueeze(1), h).squeeze(1)
        x = torch.cat((self.age(age), self.gender(gender), self.user(user), target, attended), 1)
        return self.hidden(x).squeeze(1)


def batches(items):
    torch.manual_seed(100)
    for _ in range(POOL):
        padding = torch.arange(LENGTH) >= torch.randint(1, LENGTH + 1, (BATCH, 1))
        history = torch.randint(1, items, (BATCH, LENGTH)).masked_fill(padding, 0)
        ids = [torch.randint(0, n, (BATCH,)) for n in (AGES, GENDERS, USERS, items)]
        yield (*ids, history, padding, torch.randint(0, 2, (BATCH,)).float())


def main():
    args = measure.options(__doc__)
    for items in (100, 1000000):
        pool = list(batches(items))
        for name, sparse, fused in (("sparse", True, None), ("dense", False, None), ("dense fused", False, True)):
            torch.manual_seed(1)
            model = Din(items, sparse)
            optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, initial_accumulator_value=0.1, fused=fused)
            measure.train(args, "din", "items=%d %s" % (items, name), model, optimizer, nn.BCEWithLogitsLoss(), pool,
                          steps=40 if sparse or items < 10000 else 4)


if __name__ == "__main__":
    main()
