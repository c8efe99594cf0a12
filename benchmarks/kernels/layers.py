"""The bench's layers as lines that layers.h reads."""

import json
from pathlib import Path

for layer in json.loads(Path("convt2d_ext/bench/layers.json").read_text()):
    numbers = [layer[key] for key in ("N", "Cin", "Cout", "H", "W")]
    for key in ("kernel", "stride", "padding", "output_padding", "dilation"):
        numbers += layer[key]
    print(layer["name"], *numbers, layer["groups"], int(layer["bias"]))
