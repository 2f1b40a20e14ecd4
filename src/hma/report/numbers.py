"""Numbers as a person reads them; what is not there is shown as missing."""

import math

MISSING = "—"
MINUS = "\u2212"
TIMES = "\u00d7"


def signed(value: float, digits: int) -> str:
    """Return a difference with its sign; what rounds to nothing has none.

    Example:
        >>> signed(2.78, 1), signed(-0.1, 3), signed(-0.001, 2)
        ('+2.8', '−0.100', '0.00')
    """
    return fixed(value, digits, sign="+")


def fixed(value: float, digits: int, sign: str = "") -> str:
    """Return a number with so many decimals and a minus that is as long as a plus.

    Example:
        >>> fixed(-1.25, 1), fixed(-0.001, 2)
        ('−1.2', '0.00')
    """
    text = f"{value:{sign}.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def plain(value: float) -> str:
    """Return a number of any size, with three decimals where that is neither too few nor many.

    Example:
        >>> plain(0.12345), plain(54321.0), plain(0.0000123)
        ('0.123', '54321', '0.0000123')
    """
    return fixed(value, decimals(value))


def short(value: float) -> str:
    """Return a number for an axis.

    Example:
        >>> short(-0.25), short(1e6)
        ('−0.25', '1e+06')
    """
    return f"{value:.4g}".replace("-", MINUS)


def in_percent(value: float) -> str:
    """Return a share for an axis.

    Example:
        >>> in_percent(0.125)
        '12.5%'
    """
    return f"{100 * value:.4g}%"


def decimals(value: float) -> int:
    """Return how many decimals show a number to about four digits, 3 for ordinary ones.

    Example:
        >>> decimals(0.5), decimals(12345.6), decimals(0.0001)
        (3, 0, 6)
    """
    if value == 0 or not math.isfinite(value):
        return 3
    size = math.floor(math.log10(abs(value)))
    return 3 if -3 <= size < 3 else max(0, 2 - size)


def percent(value: float, digits: int = 1) -> str:
    """Return a share in percent.

    Example:
        >>> percent(0.9583), percent(float("nan"))
        ('95.8%', '—')
    """
    return MISSING if math.isnan(value) else f"{100 * value:.{digits}f}%"


def share(value: float) -> str:
    """Return a part of a whole in percent, small ones with two decimals.

    Example:
        >>> share(0.1234), share(0.0025)
        ('12.3%', '0.25%')
    """
    return percent(value, 1 if value >= 0.01 else 2)


def times(value: float) -> str:
    """Return how many times as much something is.

    Example:
        >>> [times(value).replace(TIMES, "x") for value in (12.34, 0.98, 0.002)]
        ['12x', '0.98x', 'under 0.01x']
    """
    if value < 0.01:
        return f"under 0.01{TIMES}"
    return f"{value:.0f}{TIMES}" if value >= 10 else f"{value:.2g}{TIMES}"


def counted(count: int, noun: str) -> str:
    """Return how many there are, in words that agree.

    Example:
        >>> counted(1, "seed"), counted(3, "seed")
        ('1 seed', '3 seeds')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def capital(text: str) -> str:
    """Return a text as it begins a sentence.

    Example:
        >>> capital("log loss")
        'Log loss'
    """
    return text[:1].upper() + text[1:]


def probability(p: float) -> str:
    """Return a p-value.

    Example:
        >>> probability(0.001953), probability(1.0), probability(0.0001)
        ('0.002', '1.000', '<0.001')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def duration(seconds: float | None) -> str:
    """Return a length of time.

    Example:
        >>> duration(0.0123), duration(4.26), duration(150), duration(7322)
        ('12 ms', '4.3 s', '2 min 30 s', '2 h 2 min')
    """
    if seconds is None or math.isnan(seconds):
        return MISSING
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: int | None) -> str:
    """Return a number of bytes.

    Example:
        >>> size(412_000_000), size(3 * 2**30)
        ('393 MiB', '3.0 GiB')
    """
    if count is None:
        return MISSING
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
