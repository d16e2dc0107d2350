"""Forecasts: several guesses, and the best of them chosen by its past error."""

import random

import pytest

from penstock.elasticity.forecast import Forecast, season_of


def errors(values, after):
    """How wrong the forecast was, and how wrong the last value would have been, from some value on."""
    forecast, wrong, last_wrong = Forecast(), 0.0, 0.0
    for place, value in enumerate(values):
        if place >= after:
            wrong += abs(forecast.next() - value)
            last_wrong += abs(values[place - 1] - value)
        forecast.add(value)
    return wrong, last_wrong, forecast.best


def test_a_constant_is_the_last_value():
    assert errors([5.0] * 50, 1) == (0.0, 0.0, "last")


def test_a_trend_is_seen():
    wrong, last_wrong, best = errors([3.0 * place for place in range(60)], 20)
    assert best == "trend"
    assert wrong < 0.01 * last_wrong


@pytest.mark.parametrize("season", [7, 30])
def test_a_season_is_seen(season):
    values = [100.0 if place % season >= season - 3 else 10.0 for place in range(season * 8)]
    wrong, last_wrong, best = errors(values, season * 4)
    assert best == "season"
    assert wrong < 0.2 * last_wrong


def test_noise_is_not_made_worse():
    drawn = random.Random(1)
    values = [drawn.uniform(50, 150) for _ in range(400)]
    wrong, last_wrong, _ = errors(values, 50)
    assert wrong <= last_wrong * 1.05


def test_noise_is_averaged_and_a_jump_is_not():
    drawn, forecast = random.Random(1), Forecast()
    found = []
    for place in range(300):
        forecast.add((100.0 if place < 200 else 300.0) + drawn.gauss(0, 10))
        found.append(forecast.now)
    assert forecast.noise == pytest.approx(10, rel=0.4)
    assert all(abs(now - 100) < 15 for now in found[50:200])  # one in seven values is further away
    assert found[200] > 250


def test_a_ramp_is_no_noise():
    forecast = Forecast()
    for value in range(300, 0, -50):
        forecast.add(float(value))
    assert forecast.noise == 0.0
    assert forecast.now == 50.0


def test_noise_has_no_season():
    drawn = random.Random(2)
    assert season_of([drawn.uniform(50, 150) for _ in range(200)]) is None


def test_nothing_is_expected_below_zero():
    forecast = Forecast()
    for value in [50.0, 40.0, 30.0, 20.0, 10.0, 0.0]:
        forecast.add(value)
    assert forecast.next() >= 0.0
