"""Logs in other languages: the same numbers, and no trainer that the words do not name."""

import numpy as np
import pytest

from gptwright.record.readers import read_log
from gptwright.record.readers.words import in_english

STEPS = range(0, 1000, 250)


@pytest.mark.parametrize(
    "line",
    [
        "Schritt {s}: Trainingsverlust {t}, Validierungsverlust {v}, Lernrate 0,001",
        "Étape {s} | perte d'entraînement : {t} | perte de validation : {v} | taux d'apprentissage 0,001",
        "Paso {s}: pérdida de entrenamiento {t}, pérdida de validación {v}, tasa de aprendizaje 0,001",
        "passo {s} perda de treino {t} perda de validação {v} taxa de aprendizado 0,001",
    ],
)
def test_a_line_in_another_language(line: str) -> None:
    text = "".join(
        line.format(s=s, t=f"{4.5 - s / 500:.3f}", v=f"{4.6 - s / 500:.3f}").replace(".", ",") + "\n"
        for s in STEPS
    )
    log = read_log(None, data=text.encode())
    assert log.format.name == "plain prints"
    np.testing.assert_array_equal(log.train.step, STEPS)
    np.testing.assert_allclose(log.train.loss, [4.5, 4.0, 3.5, 3.0])
    np.testing.assert_allclose(log.evals.val_loss, [4.6, 4.1, 3.6, 3.1])
    np.testing.assert_array_equal(log.train.line, [1, 2, 3, 4])
    np.testing.assert_array_equal(log.train.learning_rate, [0.001] * 4)
    assert log.hazards["words of other languages"] >= 12


def test_a_line_in_chinese() -> None:
    text = "".join(f"第 {s} 步：训练损失 {4.5 - s / 500:.3f}，验证损失 {4.6 - s / 500:.3f}\n" for s in STEPS)
    log = read_log(None, data=text.encode())
    np.testing.assert_array_equal(log.evals.step, STEPS)
    np.testing.assert_allclose(log.train.loss, [4.5, 4.0, 3.5, 3.0])
    np.testing.assert_allclose(log.evals.val_loss, [4.6, 4.1, 3.6, 3.1])


def test_a_table_with_other_names() -> None:
    log = read_log(None, data=b"schritt;verlust;lernrate\n500;4,213;0,001\n1000;3,913;0,001\n")
    np.testing.assert_array_equal(log.train.step, [500, 1000])
    np.testing.assert_allclose(log.train.loss, [4.213, 3.913])


@pytest.mark.parametrize(
    "text",
    [
        "step 250: train loss 1.98, val loss 2.08\nSchritt fuer Schritt, der Verlust war gross\n",
        "el paso del tiempo, sin pérdida\nstep 250 | loss 2.31\n",
    ],
)
def test_words_of_a_sample_are_left_as_they_are(text: str) -> None:
    assert in_english(text) == (text, 0)
