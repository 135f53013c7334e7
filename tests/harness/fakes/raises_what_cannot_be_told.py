"""Registers, observes and raises objects that no JSON can hold and that have no text."""


class Odd(Exception):
    where = 5
    __notes__ = 7

    @property
    def errno(self):
        raise LookupError

    def __str__(self):
        raise KeyError("there is no text")


class Untold:
    def __repr__(self):
        return 5

    def __getattr__(self, name):
        raise SystemExit(name)


def scenario(rank):
    itself = []
    itself.append(itself)
    rank.check(["a", "list"], True, Untold())
    rank.check("lone \ud800", True, "\udfff")
    for number, value in enumerate(
        (
            float("nan"),
            float("-inf"),
            10**5000,
            itself,
            [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]],
            {1: 2, (3, 4): b"\xff", None: Untold()},
            "x" * 10_000_000,
            Untold(),
            Odd(),
            {"\ud800": {1, 2}},
        )
    ):
        rank.observe(f"{number}", value)
    rank.observe(b"\xff", "x")
    raise Odd from ValueError("\ud800")
