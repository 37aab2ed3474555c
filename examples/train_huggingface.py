"""The Trainer of Hugging Face transformers as a worker: each worker has its share of the data.

    pip install "outpace[recipes]"
    python examples/train_huggingface.py
    outpace run examples/train_huggingface.py --workers 2 --servers 1 sync.kind=bsp -- --epochs 2

A small GPT-2 with random weights learns to write Python, character by character. Nothing is
downloaded. `attach` alone would not be enough: with a common seed, every worker's Trainer shuffles
the same data alike, so all compute the same gradient.
"""

import argparse
import inspect

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import outpace

LENGTH = 32


class OutpaceTrainer(Trainer):
    """A Trainer whose optimizer is attached and which trains on this worker's share."""

    def create_optimizer(self, *arguments, **more):
        if self.optimizer is None:  # accelerate wraps it later
            optimizer = super().create_optimizer(*arguments, **more)
            outpace.attach(self.model, optimizer)
        return self.optimizer

    def _get_train_sampler(self, dataset=None):
        return outpace.sampler(self.train_dataset, seed=self.args.seed)

    def log(self, logs, *arguments, **more):
        super().log(logs, *arguments, **more)
        if "loss" in logs and outpace.rank() == 0:
            outpace.log(loss=logs["loss"])  # a mean over the last steps


class Text(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences of LENGTH characters of the source of argparse; any other text would do."""

    def __init__(self) -> None:
        source = inspect.getsource(argparse)[:16_000]
        self.alphabet = sorted(set(source))
        numbers = torch.tensor([self.alphabet.index(character) for character in source])
        self.sequences = numbers.split(LENGTH)[:-1]

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.sequences[place], "labels": self.sequences[place]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--out", default="huggingface-model", help="folder of the trained model")
    arguments = parser.parse_args()

    text = Text()
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(text.alphabet),
        n_positions=LENGTH,
        n_embd=32,
        n_layer=1,
        n_head=2,
        bos_token_id=None,
        eos_token_id=None,
    )
    trainer = OutpaceTrainer(
        model=GPT2LMHeadModel(config),
        train_dataset=text,
        args=TrainingArguments(
            output_dir=arguments.out,
            num_train_epochs=arguments.epochs,
            per_device_train_batch_size=8,
            learning_rate=3e-3,
            warmup_steps=5,
            logging_steps=10,
            save_strategy="no",  # checkpoints would be written by every worker
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
    )
    trainer.train()
    outpace.finish()  # the final parameters of all workers
    if outpace.rank() == 0:
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        print(f"loss: first {losses[0]:.3f}, last {losses[-1]:.3f}")
        trainer.save_model(arguments.out)


if __name__ == "__main__":
    main()
