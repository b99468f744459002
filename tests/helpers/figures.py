"""What is read off a drawn figure."""


def heights(axis) -> list[float]:
    """The heights of an axis's bars, in order."""
    return [round(bar.get_height(), 6) for bar in axis.patches]
