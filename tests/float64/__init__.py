"""Every method a second time: a numpy version of whole rounds on a tiny problem, in float64, against the engine's.

`model.py` is the problem in numpy alone, `library.py` runs the engine on it and hands over what the library draws
(orders of batches, noise), `sets.py` is shared by methods whose clients send images. A numpy version is written from
the paper's box and the documented deviations, not from the library's code: gradients of cross-entropies by hand,
those of other losses and through optimizers (meta-gradients) by central differences. A new method needs one, in a
file whose COVERS names it.
"""
