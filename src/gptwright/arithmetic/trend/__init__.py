"""What a loss curve shows: noise, slopes, forecasts, spikes, rises, overfitting, periods."""

from gptwright.arithmetic.trend.fit import CurveFit, Forecast, fit_curve, forecast
from gptwright.arithmetic.trend.noise import Noise, noise_of
from gptwright.arithmetic.trend.overfit import OverfitPoint, overfit_point
from gptwright.arithmetic.trend.periods import Period, periodicity
from gptwright.arithmetic.trend.slope import Offset, Slope, offset_between, slope
from gptwright.arithmetic.trend.spikes import Rise, Spike, find_rise, find_spikes

__all__ = [
    "CurveFit",
    "Forecast",
    "Noise",
    "Offset",
    "OverfitPoint",
    "Period",
    "Rise",
    "Slope",
    "Spike",
    "find_rise",
    "find_spikes",
    "fit_curve",
    "forecast",
    "noise_of",
    "offset_between",
    "overfit_point",
    "periodicity",
    "slope",
]
