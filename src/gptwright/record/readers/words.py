"""Words of other languages for what a log prints, as English terms.

Localized notebooks and people's own loops write `Schritt 250: Verlust 2,31` or `第 250 步: 损失 2.31`. A text
is taken for one where a word for loss stands in front of a number at its beginning; there, and only there,
such words are replaced. Lines stay lines, so what is cited stays where it is; and no term makes a line look
like that of a trainer whose source says what its numbers mean.
"""

import re

# A text is known by its beginning, as with decimal commas.
LOOKED_AT = 20_000
TRAIN = r"(?:d['’]|de |del |di |do )?(?:entra[iî]nement|entrenamiento|treino|treinamento|addestramento)"
VAL = r"(?:de |di |do )?(?:validation|validaci[oó]n|valida[cç][aã]o|validazione)"
LOSS = r"(?:pertes?|p[eé]rdida|perda|perdita)"
OF_WHAT = rf"(?: {TRAIN}| {VAL}| train| val)?"
# The first that fits: what is of training or validation before what is neither.
WORDS: tuple[tuple[str, str], ...] = (
    (r"training(?:s|[- ])?verlust|trainingsfehler", "train_loss"),
    (r"validierungs?[- ]?verlust|validierungsfehler|testverlust", "val_loss"),
    (r"verlust", "loss"),
    (rf"{LOSS} {TRAIN}|{LOSS} train", "train_loss"),
    (rf"{LOSS} {VAL}|{LOSS} val", "val_loss"),
    (LOSS, "loss"),
    (r"lernrate|taux d['’]apprentissage|tasa de aprendizaje|taxa de aprendizado", "learning_rate"),
    (r"schritt|[eé]tape|paso|passo", "step"),
    (r"epoche|[eé]poque|[eé]poca", "epoch"),
)
HAN: tuple[tuple[str, str], ...] = (
    (r"训练损失", "train_loss"),
    (r"(?:验证|测试)损失", "val_loss"),
    (r"损失", "loss"),
    (r"学习率", "learning_rate"),
    (r"第 ?(\d{1,12}) ?步", r"step \1"),
    (r"第 ?(\d{1,9}) ?轮", r"epoch \1"),
    ("：", ": "),
    ("，", ", "),
)
A_LOSS = re.compile(rf"(?:verlust|{LOSS}{OF_WHAT}|损失)[^\w\n]{{0,8}}\d", re.IGNORECASE)
IN_A_TABLE = re.compile(
    rf"^[^\n]{{0,200}}[;,|\t]\W{{0,4}}(?:\w*verlust|{LOSS})\b", re.IGNORECASE | re.MULTILINE
)
PATTERNS = (
    *((re.compile(rf"(?<![^\W_])(?:{pattern})(?![^\W_])", re.IGNORECASE), term) for pattern, term in WORDS),
    *((re.compile(pattern), term) for pattern, term in HAN),
)


def in_english(text: str) -> tuple[str, int]:
    """A text with English terms for such words, and how many there were."""
    if A_LOSS.search(text, 0, LOOKED_AT) is None and IN_A_TABLE.search(text, 0, LOOKED_AT) is None:
        return text, 0
    replaced = 0
    for pattern, term in PATTERNS:
        text, count = pattern.subn(term, text)
        replaced += count
    return text, replaced
