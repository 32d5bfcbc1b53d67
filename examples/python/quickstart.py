"""Put arrays, get them back without a copy, add them up, in a private cluster that ends with the program."""

import threading

import numpy as np

import phalanx

ref = phalanx.put(np.arange(10))  # at PHALANX_ADDRESS's node, or in a private cluster
print(phalanx.get(ref))  # a view of shared memory, read-only

late = phalanx.ref()  # not put yet
threading.Timer(0.2, phalanx.put, [{"weights": np.ones(3), "bias": np.zeros(1)}, late]).start()
print(phalanx.get(late, timeout=30)["weights"])  # waits for the object

parts = [phalanx.put(np.full((2, 2), i, np.float32)) for i in range(4)]
total = phalanx.get(phalanx.reduce(parts))  # other ops, or any k of the parts, work too
print(total)
assert total.shape == (2, 2) and total.dtype == np.float32 and (total == 6).all()

phalanx.delete([ref, late, *parts])
