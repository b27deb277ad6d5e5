"""Injected bugs of quantised folders, in the form of `ENGINE`."""

from __future__ import annotations

from mutants_engine import Bug

TESTS = ("tests/models/test_quantised.py",)

QUANTISED: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.models.quantised",
        TESTS,
        [
            (
                "rows of a stack count on in its scales",
                "at = chosen // rows * down + chosen % rows // height",
                "at = chosen // height",
            ),
            (
                "all scales are those of the first column",
                "scales.repeat_interleave(-(-width // 128), 1)[:, : cols // 128, None]",
                "scales[:, :1].expand(-1, cols // 128)[:, :, None]",
            ),
            (
                "blocks of other widths become FP8 blocks",
                "or (across > 1 and width % 128) else",
                "else",
            ),
            (
                "the block's size is 128 whatever the config says",
                'size = config.get("weight_block_size")',
                "size = (128, 128)",
            ),
            (
                "scales of activations are tensors nobody knows",
                "if config:\n        left",
                "if not config:\n        left",
            ),
        ],
    ),
    (
        "strata.models.int4",
        TESTS,
        [
            ("zeros of GPTQ are as they are stored", ".T.int() + int(older)", ".T.int()"),
            (
                "zeros of version 2 are less one too",
                'older = config.get("checkpoint_format", "gptq") == "gptq"',
                "older = True",
            ),
            (
                "AWQ's places hold the rows in order",
                "_AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]",
                "_AWQ_PLACES = [0, 1, 2, 3, 4, 5, 6, 7]",
            ),
            (
                "AWQ's places hold the rows the other way",
                "_AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]",
                "_AWQ_PLACES = [0, 2, 4, 6, 1, 3, 5, 7]",
            ),
            (
                "an order of columns is not looked at",
                "if not torch.equal(_words(order).flatten(), usual):",
                "if False:",
            ),
            (
                "each expert has a format of its own",
                're.sub(r"\\.experts\\.\\d+\\.", ".experts.", name)',
                "name",
            ),
            ("zeros are not looked at", "if bool((m.zeros(every) == 8).all()) and", "if"),
            (
                "scales are rounded to f16",
                "and torch.equal(scales.half().float(), scales):",
                "and True:",
            ),
            (
                "scales of more than 16 bits are cut",
                "or (scales.contiguous().view(torch.int32) & 255).any():",
                "or False:",
            ),
            (
                "packed zeros are those of the next rows",
                "return unpacked(down)[:, run(some)].T.int()",
                "return unpacked(down).roll(-1, 1)[:, run(some)].T.int()",
            ),
        ],
    ),
    (
        "strata.models.converted",
        TESTS,
        [
            (
                "rows in any order are taken for a run",
                "if torch.equal(rows, torch.arange(first, first + count)):",
                "if True:",
            ),
            (
                "a byte's halves change places",
                "return torch.stack((data & 15, data >> 4), dim=-1).flatten(1)",
                "return torch.stack((data >> 4, data & 15), dim=-1).flatten(1)",
            ),
            (
                "GGML's order of nibbles is the file's",
                "return torch.stack((even, odd), dim=-1).flatten(2)",
                "return data.view(len(data), -1, 16)",
            ),
        ],
    ),
]
