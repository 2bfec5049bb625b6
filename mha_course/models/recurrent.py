"""Words written backwards by a small recurrent encoder–decoder, with and without attention: where attention comes from.

The encoder reads a word letter by letter and has a state after each letter. Without attention, the last state is all
that the decoder gets. With attention, the decoder looks at every state, anew for each letter that it writes.

Sources: Cho et al. 2014 (one state for the whole input, handed to every step); Bahdanau, Cho, Bengio 2015, and d2l 11.4
(attention, with additive scores); Luong, Pham, Manning 2015 (the decoder's new state asks, not the one before it).
"""

import string
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_course.models.shipped import shipped
from mha_course.models.tasks import HELD_OUT_SEED
from mha_course.models.threads import single_thread
from mha_course.models.training import seeded, training_loop
from mha_lib.attention import AdditiveAttention

ALPHABET = string.ascii_lowercase
LONGEST = 16  # letters of the longest word in training
NUM_HIDDENS, EMBEDDING_SIZE = 32, 16
STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 64, 1e-2


class RecurrentEncoderDecoder(nn.Module):
    """Map a word to an answer of equal length by a recurrent encoder and decoder, with or without attention.

    Args:
        attends: whether the decoder looks at all states of the encoder; else it gets the last one.
    """

    def __init__(self, attends: bool):
        super().__init__()
        self.letters_read = nn.Embedding(len(ALPHABET), EMBEDDING_SIZE)
        self.letters_written = nn.Embedding(len(ALPHABET) + 1, EMBEDDING_SIZE)  # the last one stands before the first
        self.encoder = nn.GRU(EMBEDDING_SIZE, NUM_HIDDENS, batch_first=True)
        self.decoder = nn.GRUCell(EMBEDDING_SIZE + NUM_HIDDENS, NUM_HIDDENS)
        sizes = {"query_size": NUM_HIDDENS, "key_size": NUM_HIDDENS}
        self.attention = AdditiveAttention(NUM_HIDDENS, **sizes) if attends else None
        self.output = nn.Linear(2 * NUM_HIDDENS, len(ALPHABET))

    def forward(self, letters: Tensor, answers: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(b, n) integers → logits of each written letter, (b, n, 26), and its weights, (b, n, n) or None.

        Args:
            letters: the words.
            answers: the right letters, (b, n), each given to the decoder before it writes the next; left out, the
                decoder gets what it wrote itself.
        """
        states, last = self.encoder(self.letters_read(letters))  # (b, n, d) and (1, b, d)
        state = context = last[0]
        before = torch.full_like(letters[:, 0], len(ALPHABET))
        all_logits, all_weights = [], []
        for step in range(letters.shape[1]):
            state = self.decoder(torch.cat([self.letters_written(before), context], dim=1), state)
            if self.attention is not None:  # the decoder's state asks, the encoder's states are keys and values
                output, weights = self.attention.attend(state[:, None], states, states)  # (b, 1, d) and (b, 1, n)
                context = output[:, 0]
                all_weights.append(weights)
            logits = self.output(torch.cat([state, context], dim=1))
            before = logits.argmax(dim=1) if answers is None else answers[:, step]
            all_logits.append(logits)
        return torch.stack(all_logits, dim=1), torch.cat(all_weights, dim=1) if all_weights else None

    @torch.no_grad()
    def write(self, word: str) -> tuple[str, Tensor | None]:
        """Return what the model writes for one word, and its weights, (n, n): a row for each written letter.

        Raises:
            ValueError: ``word`` is empty, or has other characters than the letters a to z.
        """
        if not word or set(word) - set(ALPHABET):
            raise ValueError(f"word must consist of the letters a to z, got {word!r}")
        letters = torch.tensor([[ALPHABET.index(letter) for letter in word]], device=self.output.weight.device)
        logits, weights = self(letters)
        written = "".join(ALPHABET[letter] for letter in logits[0].argmax(dim=1).tolist())
        return written, None if weights is None else weights[0]


def draw_words(number: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return words of random letters, and the same words reversed, both (number, length)."""
    letters = torch.randint(len(ALPHABET), (number, length), generator=generator)
    return letters, letters.flip(dims=[1])


@torch.no_grad()
def right_words(model: RecurrentEncoderDecoder, length: int) -> float:
    """Return the share of 256 random words of this length that the model reverses without a mistake."""
    letters, answers = draw_words(256, length, torch.Generator().manual_seed(HELD_OUT_SEED + length))
    logits, _ = model(letters)
    return (logits.argmax(dim=2) == answers).all(dim=1).double().mean().item()


def fit_recurrent(attends: bool, seed: int = 0, steps: int = STEPS) -> RecurrentEncoderDecoder:
    """Train a new ``RecurrentEncoderDecoder`` to write words of up to 16 letters backwards; return it in eval mode.

    Steps are those of ``fit``; the words of one step are equally long, so that none needs padding.
    """
    with single_thread(), seeded(seed) as generator:
        model = RecurrentEncoderDecoder(attends)
        training_loop(model, _losses(model, steps, generator), LEARNING_RATE, cycle=steps)
    return model.eval()


def _losses(model: RecurrentEncoderDecoder, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """The mean loss over new words, step by step."""
    for _ in range(steps):
        length = int(torch.randint(1, LONGEST + 1, (), generator=generator))
        letters, answers = draw_words(BATCH_SIZE, length, generator)
        logits, _ = model(letters, answers)
        yield F.cross_entropy(logits.flatten(end_dim=1), answers.flatten())


def weights_name(attends: bool) -> str:
    """Return the name of the shipped weights of the recurrent model with or without attention."""
    return f"backwards_with{'' if attends else 'out'}_attention"


def shipped_recurrent(attends: bool) -> RecurrentEncoderDecoder:
    """Load the trained ``RecurrentEncoderDecoder`` that ships with this library, with or without attention.
    It is in eval mode, trained by ``fit_recurrent`` with seed 0.

    Raises:
        FileNotFoundError: this copy of the library lacks the weights; the message says how to get them.
        ValueError: they do not fit the model's code.
    """
    return shipped(weights_name(attends), lambda: RecurrentEncoderDecoder(attends))
