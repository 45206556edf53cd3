"""Hugging Face's Trainer with gradkern's callback: it enables, tunes in the second step, and logs the report.

python tools/examples/hugging_face_trainer.py [--steps 20] [--compile]     # pip install transformers accelerate
"""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from gradkern.torch.integrations.transformers import GradkernCallback

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--compile", action="store_true", help="by torch.compile with gradkern's backend")
options = parser.parse_args()

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=128, n_embd=256, n_layer=2, n_head=4))
texts = [{"input_ids": each, "labels": each} for each in torch.randint(256, (256, 128))]

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=options.steps, per_device_train_batch_size=16, logging_steps=10, save_strategy="no",
        report_to=[],
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=texts, callbacks=[GradkernCallback(compile=options.compile)])
    result = trainer.train()
print(f"mean loss of {options.steps} steps: {result.training_loss:.4f}")
