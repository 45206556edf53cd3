"""gradkern in the training loops of other packages: one callback each that enables, tunes and reports.

>>> from gradkern.torch.integrations.transformers import GradkernCallback
>>> trainer = transformers.Trainer(model, arguments, callbacks=[GradkernCallback()])

>>> from gradkern.torch.integrations.lightning import GradkernCallback
>>> trainer = lightning.Trainer(callbacks=[GradkernCallback()])

Each module imports its package. Other loops need three lines: `gradkern.torch.enable()`, `gradkern.torch.tune(step)`
with a real batch, and model.compile(backend="gradkern") where the model is compiled, before a wrapper such as
Accelerate's `prepare` gets it: their own options of torch.compile know a fixed list of backends.
"""
