"""Every method in numpy too: whole rounds on a tiny problem in float64, against the engine's.

`model.py` is the problem in numpy alone. `library.py` runs the engine on it and returns what the
library draws (orders of batches, noise). `sets.py` is shared by methods whose clients send images.

A numpy version follows the paper's box and the documented deviations, not the library's code. It
computes gradients of cross-entropies by hand. For other losses and through optimizers
(meta-gradients) it uses central differences. A new method needs a numpy version, in a file whose
COVERS names it.
"""
