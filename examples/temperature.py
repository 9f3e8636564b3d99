"""Convert temperatures between Celsius, Fahrenheit and Kelvin."""

ABSOLUTE_ZERO = -273.15


def to_fahrenheit(celsius):
    """Return the temperature in degrees Fahrenheit."""
    return celsius * 9 / 5 + 32


def to_kelvin(celsius):
    """Return the temperature in kelvins."""
    return celsius - ABSOLUTE_ZERO


def from_fahrenheit(fahrenheit):
    """Return the temperature in degrees Celsius."""
    return (fahrenheit - 32) * 5 / 9


def describe(celsius):
    """Say how warm it is, in words."""
    if celsius < 0:
        return "freezing"
    if celsius < 15:
        return "cold"
    if celsius < 25:
        return "mild"
    return "hot"


def main():
    for celsius in (-10, 0, 12, 21, 35):
        print(celsius, to_fahrenheit(celsius), to_kelvin(celsius), describe(celsius))


if __name__ == "__main__":
    main()
